"""A cache whose keys have one scheme of quantization, and its values another."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import mlx.core as mx
import numpy as np

from conformance.backend.attention_properties import causal_mask
from conformance.core.properties import Property
from conformance.plugins.mlx_vlm import compat
from conformance.plugins.mlx_vlm.properties.quantization.codec_numbers import Array
from conformance.plugins.mlx_vlm.properties.quantization.codecs import differs, drawn
from conformance.plugins.mlx_vlm.properties.quantization.turbo_batches import HEADS, NOISE, decoded
from conformance.plugins.mlx_vlm.properties.quantization.turbo_caches import same

kv_quant: Any = compat.part("kv_quant")
turboquant: Any = compat.part("turboquant")

_SEED = 5


def turbo_mixed_properties() -> list[Property]:
    """Those of ``HybridQuantKVCache``."""
    names = ("HybridQuantKVCache.*", "_*TensorQuantizer.*", "_make_tensor_*", "_packed_*")
    return [Property("turbo: two schemes", "mlx_vlm/turboquant.py", names, _mixed)]


def _mixed() -> Iterator[str]:
    """Keys by one scheme, values by the other: each as alone."""
    both = [drawn((1, HEADS, 5, 32), seed) for seed in (1, 2)]
    for schemes in (("uniform", "turboquant"), ("turboquant", "uniform")):
        policy = kv_quant.from_legacy(4, None, 32, None, None, *schemes)
        held = turboquant.HybridQuantKVCache(policy, _SEED)
        empty = turboquant.HybridQuantKVCache(policy)
        if (empty.seed, empty.offset, empty.state) != (0, 0, (None, None)):
            yield "a cache that is not fed has something"
        for start, end in ((0, 3), (3, 4), (4, 5)):
            got = held.update_and_fetch(*(mx.array(one[:, :, start:end]) for one in both))
            expected = _by(schemes, [one[:, :, :end] for one in both])
            if any(differs(a, b, NOISE) for a, b in zip(got, expected, strict=True)):
                yield f"{schemes}: {end} tokens are others"
            if held.offset != end:
                yield f"{schemes}: {end} tokens are {held.offset}"
        yield from _there_and_back(held, policy, schemes)


def _by(schemes: tuple[str, str], both: list[Array]) -> list[Array]:
    turbo = decoded(both, (4, 4), _SEED)
    uniform = [
        np.array(mx.dequantize(*mx.quantize(mx.array(one), 32, 4), 32, 4)).astype(np.float64)
        for one in both
    ]
    return [
        turbo[at] if scheme == "turboquant" else uniform[at] for at, scheme in enumerate(schemes)
    ]


def _there_and_back(held: Any, policy: Any, schemes: tuple[str, str]) -> Iterator[str]:
    other = kv_quant.from_legacy(8, None, 64, None, None, *schemes[::-1])
    again = turboquant.HybridQuantKVCache(other)
    again.meta_state = held.meta_state
    if (again.policy, again.seed, again.offset) != (policy, _SEED, 5):
        yield f"{schemes}: settings come back as {again.policy}"
    for which in ("key_quantizer", "value_quantizer"):
        mine, theirs = getattr(held, which), getattr(again, which)
        said = [
            (type(one), one.bits, getattr(one, "seed", None), getattr(one, "group_size", None))
            for one in (mine, theirs)
        ]
        if said[0] != said[1]:
            yield f"{schemes}: {which} comes back as {said[1]}"
    for which in ("key_quantizer", "value_quantizer"):
        setattr(again, which, getattr(held, which))
    again.offset = 0
    again.state = held.state
    if again.offset != 5 or not same(again.dequantize(), held.dequantize()):
        yield f"{schemes}: a state that is put in is another"
    arrays = [leaf for part in held.state for leaf in part]
    said = held.memory_profile(5)
    size = sum(one.nbytes for one in arrays)
    if (said.source_bytes, said.bytes_per_token, said.step) != (size, size / 5, 1):
        yield f"{schemes}: of {size} bytes {said} is said"
    mask = held.make_mask(2, return_array=True, window_size=None)
    if not np.array_equal(np.array(mask), causal_mask(2, 5, None, [0], [0])[0, 0]):
        yield f"{schemes}: the mask is another"
    before = [np.array(one)[:, :, :3] for one in held.dequantize()]
    if not held.is_trimmable() or (held.trim(0), held.trim(-1), held.trim(2)) != (0, 0, 2):
        yield f"{schemes}: it is not trimmed"
    if held.offset != 3 or not same(held.dequantize(), [mx.array(one) for one in before]):
        yield f"{schemes}: trimmed it is another"
    if held.trim(9) != 3 or held.offset != 0:
        yield f"{schemes}: more is trimmed than there is"
    again.state = None
    if (again.offset, again.state) != (0, (None, None)):
        yield f"{schemes}: a state of nothing leaves something"
