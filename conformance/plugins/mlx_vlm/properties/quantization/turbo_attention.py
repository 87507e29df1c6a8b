"""Attention over keys and values that TurboQuant has quantized, beside what they stand for."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import mlx.core as mx
import numpy as np

from conformance.backend.attention_properties import attention, causal_mask
from conformance.core.properties import Property
from conformance.plugins.mlx_vlm import compat
from conformance.plugins.mlx_vlm.properties.quantization.codec_numbers import Array
from conformance.plugins.mlx_vlm.properties.quantization.codecs import differs, drawn

base: Any = compat.part("models.base")
cache: Any = compat.part("models.cache")
turboquant: Any = compat.part("turboquant")

_FILE, _BASE = "mlx_vlm/turboquant.py", "mlx_vlm/models/base.py"
_HEADS, _SIZE, _TOKENS = 2, 8, 7
_NOISE = 2e-5


def turbo_attention_properties() -> list[Property]:
    """Those of a cache's own attention, of which is taken, and of what models ask of a cache."""
    own = ("_TurboQuantAttentionMixin.*", "_TurboQuantMSECodec.*", "_SplitCodec.*", "_metal_*")
    taken = ("scaled_dot_product_attention", "_turboquant_attention_applies", "dequantize_kv_*")
    asked = ("kv_sequence_length", "slice_kv_sequence", "cache_position_offset", "create_*mask")
    return [
        Property("turbo: its own attention", _FILE, own, _over_quantized),
        Property("turbo: a few keys at once", _FILE, own, _in_pieces),
        Property("turbo: which attention is taken", _BASE, taken, _which),
        Property("models: what is asked of a cache", _BASE, asked, _asked),
        Property("models: shapes and names", _BASE, ("align_*", "InputEmbeddings*"), _shapes),
        Property("models: attention in pieces", _BASE, ("chunked_*", "ensure_fused_*"), _chunked),
    ]


def filled(bits: float, rows: int = 1, padding: Sequence[int] | None = None) -> Any:
    """A cache with drawn keys and values; with ``padding`` one of a batch."""
    made = turboquant.TurboQuantKVCache
    empty = made(bits) if padding is None else turboquant.BatchTurboQuantKVCache(padding, bits)
    shape = rows, _HEADS, _TOKENS, _SIZE
    empty.update_and_fetch(mx.array(drawn(shape, 2)), mx.array(drawn(shape, 3)))
    return empty


def _masks(tokens: int) -> dict[str, tuple[Any, Any, Any]]:
    """Each with what it lets see, and what it adds."""
    lower = np.tri(tokens, _TOKENS, _TOKENS - tokens, dtype=bool)
    some = np.random.default_rng(5).random((1, 1, tokens, _TOKENS)) < 0.6
    some[..., 2] = True
    bias = np.random.default_rng(4).normal(0, 1, (1, 1, tokens, _TOKENS)).astype(np.float32)
    wide = np.concatenate([bias, 2 * bias, -bias, bias + 1], axis=1)
    return {
        "none": (None, True, 0.0),
        "causal": ("causal", lower, 0.0),
        "of rows": (mx.array(some), some, 0.0),
        "of all": (mx.array(some[0, 0]), some, 0.0),
        "added": (mx.array(bias), True, bias),
        "added to each head": (mx.array(wide).reshape(1, _HEADS, 2, tokens, _TOKENS), True, wide),
    }


def _over_quantized() -> Iterator[str]:
    for bits, padding, tokens in itertools.product((4, 3.5), (None, [0]), (1, 3)):
        held = filled(bits, padding=padding)
        yield from _against(held, tokens, f"{bits} bits, {tokens} tokens")
    held = turboquant.TurboQuantKVCache(4, key_bits=2.5, value_bits=3.5)
    shape = 1, _HEADS, _TOKENS, _SIZE
    held.update_and_fetch(mx.array(drawn(shape, 2)), mx.array(drawn(shape, 3)))
    for tokens in (1, 3):
        yield from _against(held, tokens, f"two parts, {tokens} tokens")


def _in_pieces() -> Iterator[str]:
    """Three keys and two queries at once: sums of pieces are weighed by their largest scores."""
    for tokens in (1, 5):
        held = filled(4)
        held.decode_key_chunk_size = held.prefill_key_chunk_size = 3
        held.prefill_query_block_size = 2
        yield from _against(held, tokens, f"in pieces, {tokens} tokens")


def _against(held: Any, tokens: int, name: str) -> Iterator[str]:
    queries = drawn((1, 2 * _HEADS, tokens, _SIZE), 6)
    plain = [np.array(one) for one in held.dequantize()]
    given = held.state[:2]
    proxies = [turboquant._QuantizedStateProxy(one, _TOKENS, _HEADS) for one in given]
    calls = [held.quantized_attention, *([held.decode_attention] if tokens == 1 else [])]
    for (mask_name, (mask, seen, more)), call in itertools.product(_masks(tokens).items(), calls):
        wanted = attention((queries, *plain), 0.3, seen, more)
        asked = {"states": call(mx.array(queries), *given, 0.3, mask)}
        if mask_name == "causal":
            asked["its own"] = call(mx.array(queries), scale=0.3, mask=mask)
            asked["keys alone"] = call(mx.array(queries), given[0], scale=0.3, mask=mask)
            asked["what it gave"] = call(mx.array(queries), *proxies, 0.3, mask)
        for which, got in asked.items():
            if found := differs(got, wanted, _NOISE):
                yield f"{name}, mask {mask_name}: {call.__name__} of {which} {found}"
    half = mx.array(queries).astype(mx.bfloat16)
    if {call(half).dtype for call in calls} != {mx.bfloat16}:
        yield f"{name}: the dtype is not that of queries"
    ones = attention((queries, *plain), 1.0, True)
    if any(differs(call(mx.array(queries)), ones, _NOISE) for call in calls):
        yield f"{name}: without a scale it is another"
    if tokens == 1:
        # One token sees all, by each mask of these: the same is computed.
        same = [held.decode_attention(mx.array(queries), mask=mask) for mask in (None, "causal")]
        if differs(same[0], np.array(same[1]), 0):
            yield f"{name}: a causal mask of a token is another than none"
    if held.prefill_attention(mx.array(queries), *given, 0.3) is not None:
        yield f"{name}: prefill is not left to others"
    refused = [lambda: calls[-1](mx.array(queries), mask="other", scale=0.3)]
    if tokens > 1:
        refused.append(lambda: held.decode_attention(mx.array(queries)))
    for call in refused:
        try:
            call()
        except ValueError:
            continue
        yield f"{name}: another mask, or more than a token, is taken"


class _Own:
    """Stands in for a cache's own attention: what it is asked."""

    def __init__(self, *, answers: bool) -> None:
        self.answers = answers
        self.asked: list[Any] = []

    def __call__(self, *args: Any, **options: Any) -> Any:
        self.asked.append((args, options))
        return "its own" if self.answers else None


def _which() -> Iterator[str]:
    """Its own of one row without padding; else what is dequantized is seen by the mask."""
    sinks = np.array([0.5, -1.0, 2.0, 0.0], np.float32)
    rows = {"one": (1, None), "a batch of one": (1, [0]), "padded": (1, [2]), "two": (2, [0, 0])}
    for (name, (count, padding)), tokens, with_sinks in itertools.product(
        rows.items(), (1, 3), (False, True)
    ):
        held = filled(4, count, padding)
        queries = drawn((count, 2 * _HEADS, tokens, _SIZE), 6)
        given = [turboquant._QuantizedStateProxy(one, 5, _HEADS) for one in held.state[:2]]
        given = [one[:, :, :5] for one in given]
        mask = causal_mask(tokens, 5 - tokens, None, [0], [1])
        options: dict[str, Any] = {"scale": 0.3, "mask": mx.array(mask)}
        extra = {"sinks": mx.array(sinks)} if with_sinks else {}
        call = base.scaled_dot_product_attention
        got = call(mx.array(queries), *given, held, **options, **extra)
        plain = [np.array(one)[:, :, :5] for one in held.dequantize()]
        wanted = _with_sinks((queries, *plain), mask, sinks if with_sinks else None)
        if found := differs(got, wanted, _NOISE):
            yield f"{name}, {tokens} tokens, sinks {with_sinks}: it {found}"
        own = not with_sinks and name in ("one", "a batch of one")
        held.decode_attention, held.prefill_attention = (
            _Own(answers=True),
            _Own(answers=tokens == 3),
        )
        again = call(mx.array(queries), *given, held, **options, **extra)
        if isinstance(again, str) is not own:
            yield f"{name}, {tokens} tokens, sinks {with_sinks}: its own is taken: {not own}"
        asked = [*held.decode_attention.asked, *held.prefill_attention.asked]
        names = {"keys_state": given[0], "values_state": given[1], **options}
        if own and asked[0][1] != names:
            yield f"{name}: its own attention is asked with {asked[0][1].keys()}"
    yield from _half()


def _with_sinks(qkv: Sequence[Array], mask: Array, sinks: Array | None) -> Array:
    """A sink is one more key, of no value, whose score is given."""
    if sinks is None:
        return attention(qkv, 0.3, mask)
    queries, *both = qkv
    wider = [np.pad(one, [(0, 0), (0, 0), (0, 1), (0, 0)]) for one in both]
    more = np.zeros((len(sinks), 1, wider[0].shape[2]))
    more[:, 0, -1] = sinks
    seen = np.pad(mask, [(0, 0), (0, 0), (0, 0), (0, 1)], constant_values=True)
    return attention((queries, *wider), 0.3, seen, more)


def _half() -> Iterator[str]:
    held = filled(4, 2, [0, 1])
    queries = mx.array(drawn((2, 2 * _HEADS, 1, _SIZE), 6)).astype(mx.bfloat16)
    got = base.scaled_dot_product_attention(queries, *held.state[:2], held, scale=1.0, mask=None)
    if got.dtype != mx.bfloat16:
        yield f"attention of bfloat16 is of {got.dtype}"
    both = base.dequantize_kv_state(held, *held.state[:2])
    if any(differs(a, np.array(b), 0) for a, b in zip(both, held.dequantize(), strict=True)):
        yield "what a cache gives is dequantized as another"
    plain = mx.zeros((1, 2)), mx.zeros((1, 3))
    if base.dequantize_kv_state(None, *plain) != plain:
        yield "plain keys and values are not kept"
    packed = [mx.quantize(mx.array(drawn((1, 2, 3, 64), n)), 32, 4) for n in (1, 2)]
    uniform = cache.QuantizedKVCache(group_size=32, bits=4)
    both = base.dequantize_kv_state(uniform, *packed)
    for got, one in zip(both, packed, strict=True):
        if differs(got, np.array(mx.dequantize(*one, 32, 4)), 0):
            yield "uniform keys and values are dequantized as others"


def _shapes() -> Iterator[str]:
    """Masks get axes before the last two; embeddings go to a model by their names."""
    scores = mx.zeros((2, 3, 4, 5, 6))
    for shape, wanted in (
        ((5, 6), (1, 1, 1, 5, 6)),
        ((2, 3, 5, 6), (2, 3, 1, 5, 6)),
        ((2, 3, 4, 5, 6), (2, 3, 4, 5, 6)),
        ((6,), (1, 1, 1, 1, 6)),
    ):
        got = base.align_attention_mask_to_scores(mx.zeros(shape), scores)
        if got.shape != wanted:
            yield f"a mask of {shape} is aligned as {got.shape}"
    if (base.align_attention_mask_to_scores(None, scores)) is not None:
        yield "no mask is aligned as one"
    names = [one.name for one in dataclasses.fields(base.InputEmbeddingsFeatures)]
    given = {name: mx.array(at) for at, name in enumerate(names)}
    got = base.InputEmbeddingsFeatures(**given).to_dict()
    if {name: int(one) for name, one in got.items()} != {n: at for at, n in enumerate(names)}:
        yield f"embeddings are given as {sorted(got)}"


class _Offsets:
    """Stands in for a cache of which only the position is asked."""

    def __init__(self, **values: Any) -> None:
        vars(self).update(values)


def _asked() -> Iterator[str]:
    keys = mx.array(drawn((2, 2, 5, 64)))
    packed = mx.quantize(keys, 32, 4)
    held = filled(4)
    states = (keys, packed, list(packed), held.state[0], _Offsets(shape=(1, 2, 9, 0)))
    lengths = [base.kv_sequence_length(one) for one in states]
    if lengths != [5, 5, 5, _TOKENS, 9]:
        yield f"lengths are {lengths}"
    parts = [base.slice_kv_sequence(one, 3) for one in (packed, [keys])]
    if [[one.shape[2] for one in part] for part in parts] != [[3, 3, 3], [3]]:
        yield "parts of keys are of other lengths"
    if differs(base.slice_kv_sequence(keys, 3), np.array(keys)[:, :, :3], 0):
        yield "keys are cut elsewhere"
    rows = mx.array([3, 7, 5])
    cases: list[tuple[Any, int]] = [
        (None, 0),
        (_Offsets(offset=4, _idx=9), 4),
        (_Offsets(offset=rows, _offset=8, _idx=9), 8),
        (_Offsets(offset=rows, _idx=9), 9),
        (_Offsets(offset=rows, _offset=None, _idx=0), 0),
        (_Offsets(offset=rows), 7),
        (_Offsets(offset=mx.zeros((0,), mx.int32)), 0),
    ]
    got = [base.cache_position_offset(one) for one, _ in cases]
    if got != [wanted for _, wanted in cases] or {type(one) for one in got} != {int}:
        yield f"positions are {got}"
    single = cache.KVCache()
    single.update_and_fetch(mx.zeros((1, 1, 3, 4)), mx.zeros((1, 1, 3, 4)))
    hidden = mx.zeros((1, 5, 4))
    for several in ([single, None], (single,)):
        mask = base.create_attention_mask(hidden, several, return_array=True)
        if not np.array_equal(np.array(mask), np.tri(5, 8, 3, dtype=bool)):
            yield "of several caches it is not the first that is asked"
    nothing: tuple[Any, ...] = ([], (), mx.zeros((3,)))
    for none in nothing:
        if base.create_attention_mask(hidden, none) != "causal":
            yield "without a cache a mask is another"
    if base.create_ssm_mask(hidden, mx.zeros((3,))) is not None:
        yield "an array has a mask of recurrent layers"


def _chunked() -> Iterator[str]:
    """By pieces of queries, or of heads padded to a size that a kernel has: it is the same."""
    for tokens, size in ((5, 2), (4, 4), (3, 8)):
        qkv = [drawn((2, 2, many, _SIZE), n) for n, many in enumerate((tokens, 6, 6))]
        given = [mx.array(one) for one in qkv]
        got = base.chunked_attention(*given, 0.3, size)
        if found := differs(got, attention(qkv, 0.3, True), _NOISE):
            yield f"attention of {tokens} in pieces of {size} {found}"
    for size in (8, 64, 72, 80, 100, 128, 130):
        qkv = [drawn((1, 2, many, size), n) for n, many in enumerate((3, 6, 6))]
        seen = np.random.default_rng(1).random((1, 1, 3, 6)) < 0.7
        given = [mx.array(one) for one in qkv]
        for mask, visible in ((None, True), (mx.array(seen), seen)):
            got = base.ensure_fused_sdpa(*given, 0.1, mask)
            if found := differs(got, attention(qkv, 0.1, visible), _NOISE):
                yield f"attention of heads of {size} {found}"
