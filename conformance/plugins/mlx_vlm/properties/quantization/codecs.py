"""TurboQuant's codecs: quantizing, decoding, scores and weighted sums of what is quantized."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import mlx.core as mx
import numpy as np

from conformance.core.properties import Property
from conformance.plugins.mlx_vlm import compat
from conformance.plugins.mlx_vlm.properties.quantization import codec_numbers as wanted
from conformance.plugins.mlx_vlm.properties.quantization.codec_numbers import Array, Codec

turboquant: Any = compat.part("turboquant")

_FILE = "mlx_vlm/turboquant.py"
_ROUNDING = 1e-5
_PARTS = ("_beta_pdf", "_codebook", "_rotation_matrix", "_rht_*", "_next_power_of_two")


def codec_properties() -> list[Property]:
    """Those of codecs and of what they are made of."""
    # Constants of the module are of no function.
    plain = ("", "_TurboQuantMSECodec.*", "_build_codec", "_metal_*", "_fused_*_kernel", *_PARTS)
    return [
        Property("codecs: rotations and levels", _FILE, _PARTS, _made),
        Property("codecs: packed numbers", _FILE, ("_pack*", "_unpack*"), _packing),
        Property("codecs: of whole bits", _FILE, (*plain, "_pack*", "_unpack*"), _whole),
        Property(
            "codecs: of half bits", _FILE, ("_SplitCodec.*", "_build_codec", "_select_*"), _half
        ),
        Property("codecs: kept", _FILE, ("_*_kv_codec", "_SplitCodec.*", "_codecs_*"), _kept),
    ]


def differs(got: mx.array, expected: Array, noise: float = _ROUNDING) -> str:
    """How an array differs, in a few words; empty if it does not."""
    if tuple(got.shape) != expected.shape:
        return f"has the shape {tuple(got.shape)}, not {expected.shape}"
    away = np.abs(np.array(got.astype(mx.float32)).astype(np.float64) - expected)
    worst = float(away.max(initial=0.0))
    return "" if worst <= noise else f"is {worst:.1g} off"


def drawn(shape: Sequence[int], seed: int = 1) -> Array:
    """Normal numbers, of which some elements are larger on average."""
    sizes = 1 + np.random.default_rng(seed + 50).uniform(0, 2, shape[-1])
    numbers = np.random.default_rng(seed).normal(0, 1, shape) * sizes
    return numbers.astype(np.float32)


def _made() -> Iterator[str]:
    for dim, seed in itertools.product((1, 2, 6, 32), (0, 3)):
        pairs = {
            "rotation": (turboquant._rotation_matrix(dim, seed), wanted.rotation(dim, seed)),
            "signs": (turboquant._rht_sign_vector(dim, seed), wanted.signs(dim, seed)),
        }
        vectors = drawn((2, 3, dim))
        given = mx.array(vectors), pairs["signs"][0]
        turned = wanted.hadamard(dim) * wanted.signs(dim, seed)
        pairs["transform"] = turboquant._rht_forward(*given), vectors @ turned.T
        pairs["transform back"] = turboquant._rht_inverse(*given), vectors @ turned
        for name, (got, expected) in pairs.items():
            if found := differs(got, expected):
                yield f"the {name} of {dim} elements with seed {seed} {found}"
    none = [turboquant._rotation_matrix(0, 0).shape, turboquant._rht_sign_vector(0, 0).shape]
    if none != [(0, 0), (0,)] or turboquant._codebook(5, 0).shape != (0,):
        yield f"of no elements there are {none}"
    for dim, bits in ((1, 2), (1, 3), (2, 2), (3, 2), (32, 3), (48, 2), (32, 4)):
        book = turboquant._codebook(dim, bits)
        if found := differs(book, wanted.codebook(dim, bits), wanted.STEP) or dtype(
            book, mx.float32
        ):
            yield f"the codebook of {dim} elements and {bits} bits {found}"
    if not np.allclose(turboquant._beta_pdf(np.linspace(-1, 1, 8), 1), 1 / 8):
        yield "a vector of one element is not as probable everywhere"


def dtype(array: mx.array, expected: mx.Dtype) -> str:
    """How the dtype differs; empty if it does not."""
    return "" if array.dtype == expected else f"is of {array.dtype}"


def _packing() -> Iterator[str]:
    for bits, length in itertools.product((1, 3, 4, 5, 8), (1, 2, 11, 32)):
        numbers = np.random.default_rng(bits).integers(0, 1 << bits, (2, 3, length))
        numbers[0, 0] = (1 << bits) - 1
        packed = turboquant._pack_lowbit(mx.array(numbers), bits)
        expected = wanted.packed(numbers, bits)
        if packed.dtype != mx.uint32 or not np.array_equal(np.array(packed), expected):
            yield f"{length} numbers of {bits} bits are packed as others"
        again = turboquant._unpack_lowbit(mx.array(expected), bits, length)
        if again.dtype != mx.uint32 or not np.array_equal(np.array(again), numbers):
            yield f"{length} numbers of {bits} bits are unpacked as others"
        if turboquant._packed_width(length, bits) != expected.shape[-1]:
            yield f"{length} numbers of {bits} bits have another width"
    none = (
        turboquant._pack_lowbit(mx.zeros((2, 3)), 0),
        turboquant._unpack_lowbit(mx.zeros((2, 0)), 0, 3),
    )
    if [one.shape for one in none] != [(2, 0), (2, 0)] or {x.dtype for x in none} != {mx.uint32}:
        yield "no bits are packed as others"
    if (turboquant._packed_width(0, 3), turboquant._packed_width(3, 0)) != (0, 0):
        yield "nothing has a width"


def _whole() -> Iterator[str]:
    """Of each dtype, of one token and of more, and of vectors of zeros."""
    cases = ((8, 4, 5), (8, 3, 1), (8, 1, 2), (6, 3, 4), (6, 2, 1), (6, 0, 2), (1, 2, 2))
    for (dim, bits, tokens), kind in itertools.product(cases, (mx.float32, mx.bfloat16)):
        vectors = mx.array(drawn((2, 3, tokens, dim))).astype(kind)
        vectors[1, 2] = 0
        # Shorter than what lengths are divided by at least.
        vectors[1, 0] *= 1e-7
        made = turboquant._build_codec(vectors, bits, mode="mse", seed=bits) if bits else None
        codec = made or turboquant._TurboQuantMSECodec(dim, bits, bits)
        expected = Codec(dim, bits, bits)
        plain = np.array(vectors.astype(mx.float32)).astype(np.float64)
        yield from _state(codec, expected, vectors, plain)
        yield from _reads(codec, codec.quantize(vectors), expected.decoded(plain))
        if found := differs(codec.rotation, wanted.rotation(dim, bits)):
            yield f"the rotation of {dim} elements {found}"


def _state(codec: Any, expected: Codec, vectors: mx.array, plain: Array) -> Iterator[str]:
    name = f"{vectors.shape[-1]} elements of {vectors.dtype}, {expected.bits} bits"
    state = codec.quantize(vectors)
    lengths, packed = expected.lengths(plain), wanted.packed(expected.levels(plain), codec.bits)
    # A vector of zeros has any level next to zero, and no length.
    there = np.arange(6).reshape(2, 3, 1) < 5
    packed = np.where(there[..., None], packed, np.array(state.indices))
    if differs(state.norms, lengths, 1e-2) or state.norms.dtype != mx.float16:
        yield f"{name}: lengths are others"
    if state.indices.dtype != mx.uint32 or not np.array_equal(np.array(state.indices), packed):
        yield f"{name}: levels are others"
    back = codec.dequantize(state)
    # A length is rounded to 11 bits, once up and once down where it is between two.
    if found := differs(back, expected.decoded(plain), 1e-2) or dtype(back, mx.float32):
        yield f"{name}: what is decoded {found}"
    unit = plain / np.maximum(np.linalg.norm(plain, axis=-1, keepdims=True), 1e-6)
    inner, estimate = codec._quantize_unit_with_estimate(mx.array(unit.astype(np.float32)))
    units = codec._dequantize_unit(inner)
    if not np.array_equal(np.array(inner), packed) or differs(estimate, np.array(units)):
        yield f"{name}: a unit vector is estimated as another"


def _reads(codec: Any, state: Any, decoded: Array) -> Iterator[str]:
    """Scores and sums beside those of the decoded vectors."""
    heads, dim = decoded.shape[1], decoded.shape[-1]
    exact = np.array(codec.dequantize(state)).astype(np.float64)
    if not np.allclose(exact, decoded, atol=1e-2):
        yield "what is decoded is another"
    if codec.bits == 0:
        return
    for each, tokens in ((2, 1), (2, 2), (1, 3)):
        queries = drawn((2, heads, each, tokens, dim), 7)
        scores = np.einsum("bhmld,bhtd->bhmlt", queries, exact)
        shares = np.exp(scores - scores.max(-1, keepdims=True))
        given = mx.array(scores.astype(np.float32))
        soft = shares / shares.sum(-1, keepdims=True)
        summed, total, most = codec.weighted_sum_stats_from_scores(given, state)
        pairs = {
            "the score": (codec.score(mx.array(queries), state), scores),
            "the sum": (codec.weighted_sum(given, state), scores @ exact[:, :, None]),
            "the sum by softmax": (
                codec.weighted_sum_from_scores(given, state),
                soft @ exact[:, :, None],
            ),
            "the sum by shares": (summed, shares @ exact[:, :, None]),
            "the total of shares": (total, shares.sum(-1)),
            "the largest score": (most, scores.max(-1)),
        }
        for name, (got, expected) in pairs.items():
            if found := differs(got, expected, 2e-4):
                yield f"{name} of {tokens} tokens, {codec.bits} bits, {found}"


def _half() -> Iterator[str]:
    for dim, bits in ((12, 3.5), (5, 1.5), (2, 2.5)):
        vectors = drawn((2, 3, 4, dim), dim)
        codec = turboquant._build_codec(mx.array(vectors), bits, mode="mse", seed=2)
        low, high = wanted.parted(vectors, bits)
        if (codec.low_idx.tolist(), codec.high_idx.tolist()) != (low.tolist(), high.tolist()):
            yield f"of {dim} elements {codec.high_idx.tolist()} have one bit more"
        state = codec.quantize(mx.array(vectors))
        decoded = wanted.decoded(vectors.astype(np.float64), bits, 2)
        if found := differs(codec.dequantize(state), decoded, 1e-2):
            yield f"what {bits} bits give {found}"
        yield from _reads(codec, state, decoded)
        kinds = type(codec), codec.dim, codec.bits, codec.lower_bits, codec.upper_bits, codec.mode
        parts = (math.floor(bits), math.ceil(bits), "mse")
        if kinds != (turboquant._SplitCodec, dim, bits, *parts):
            yield f"a codec of {bits} bits is of {kinds}"
        if codec.combined_query_transform_t is not None:
            yield "a codec has what is of another mode"
    try:
        turboquant._select_outlier_indices(mx.zeros((1, 1, 1, 4)), 3)
        yield "whole bits have two parts"
    except ValueError:
        pass


def _kept() -> Iterator[str]:
    """A codec comes back of what is kept of it; which are alike."""
    vectors = {seed: mx.array(drawn((1, 2, 3, 12), seed)) for seed in (1, 2)}
    codecs = {
        (bits, seed): turboquant._build_codec(vectors[seed], bits, mode="mse", seed=9)
        for bits, seed in itertools.product((2, 3, 2.5, 3.5), (1, 2))
    }
    for (bits, seed), codec in codecs.items():
        again = turboquant._restore_kv_codec(turboquant._snapshot_kv_codec(codec), bits, 9)
        state = codec.quantize(vectors[seed])
        if type(again) is not type(codec) or again.bits != bits:
            yield f"a codec of {bits} bits comes back as one of {again.bits}"
        if found := differs(again.dequantize(state), np.array(codec.dequantize(state)), 0):
            yield f"with a codec of {bits} bits that comes back, what is decoded {found}"
    for (mine, one), (other, two) in itertools.product(codecs.items(), repeat=2):
        alike = mine[0] == other[0] and (mine[1] == other[1] or float(mine[0]).is_integer())
        if turboquant._codecs_compatible(one, two) is not alike:
            yield f"codecs of {mine} and {other} are said to be alike: {not alike}"
    small = turboquant._TurboQuantMSECodec(6, 2, 9)
    if turboquant._codecs_compatible(codecs[2, 1], small):
        yield "codecs of other sizes are alike"
    if turboquant._snapshot_kv_codec(None) is not None:
        yield "of no codec something is kept"
    if turboquant._restore_kv_codec(None, 2, 9) is not None:
        yield "a codec comes back of nothing"
    yield from _refused()


def _refused() -> Iterator[str]:
    part = mx.zeros((2,), mx.int32)
    calls: tuple[tuple[Callable[[], Any], type[Exception]], ...] = (
        (lambda: turboquant._snapshot_kv_codec(object()), TypeError),
        (lambda: turboquant._restore_kv_codec((4, part, None), 2.5, 0), ValueError),
        (lambda: turboquant._restore_kv_codec((4, None, part), 2.5, 0), ValueError),
    )
    for call, error in calls:
        try:
            call()
        except error:
            continue
        yield "what is no whole codec is taken"
