"""Checks a library's masks and quantized attention against definitions in numpy."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from functools import partial
from types import ModuleType, SimpleNamespace
from typing import Any

import mlx.core as mx
import numpy as np

from conformance.core.properties import Property

_ROWS, _HEADS, _SIZE = 3, 2, 64
_NOISE = 2e-5
# Sums in bfloat16 are rounded with each key; three times the error if shares are bfloat16 too.
_HALF = 2**-4


def attention_properties(base: ModuleType, causal: ModuleType) -> list[Property]:
    """The properties of a library's ``models/base.py`` and of ``create_causal_mask``."""
    file, masks = (f"{one.__name__.replace('.', '/')}.py" for one in (base, causal))
    attention = ("quantized_scaled_dot_product_attention", "scaled_dot_product_attention")
    names = (*attention, "align_attention_mask_to_scores", "dequantize_kv_state")
    made = ("create_attention_mask", "create_ssm_mask")
    return [
        Property("masks: causal", masks, ("create_causal_mask",), partial(_causal, causal)),
        Property("masks: of a model", file, made, partial(_of_model, base)),
        Property("attention: quantized", file, names, partial(_quantized, base)),
        Property("attention: in half precision", file, names, partial(_half, base)),
        Property("attention: which is taken", file, names, partial(_which, base)),
    ]


def causal_mask(
    tokens: int, offset: int, window: int | None, right: Sequence[int], left: Sequence[int]
) -> np.ndarray:
    """Which keys each token sees, ``[rows, 1, tokens, offset + tokens]``: none later or padded."""
    last = offset + tokens
    found = np.zeros((len(left), 1, tokens, last), bool)
    for row, query, key in itertools.product(range(len(left)), range(tokens), range(last)):
        near = window is None or offset + query - key < window
        real = left[row] <= key < last - right[row]
        found[row, 0, query, key] = key <= offset + query and near and real
    return found


def _causal(module: ModuleType) -> Iterator[str]:
    none = [0] * _ROWS
    for tokens, offset, window, right, left in itertools.product(
        (1, 5), (0, 3), (None, 1, 3), (None, [0, 1, 2]), (None, [2, 0, 1])
    ):
        options: dict[str, Any] = {"window_size": window}
        options |= {"right_padding": mx.array(right)} if right else {}
        options |= {"left_padding": mx.array(left)} if left else {}
        wanted = causal_mask(tokens, offset, window, right or none, left or none)
        if right is None and left is None:
            wanted = wanted[0, 0]
        got = np.array(module.create_causal_mask(tokens, offset, **options))
        if got.shape != wanted.shape or (got != wanted).any():
            yield f"the mask of {tokens} tokens after {offset} with {options} is another"
    if not np.array_equal(np.array(module.create_causal_mask(4)), np.tri(4, dtype=bool)):
        yield "the mask of 4 tokens alone is another"


class _Asked:
    """Replaces a cache and records which mask it is asked for."""

    def __init__(self) -> None:
        self.given: Any = None

    def make_mask(self, *args: Any, **options: Any) -> str:
        self.given = args, options
        return "its own"

    def __bool__(self) -> bool:
        return True


def _of_model(module: ModuleType) -> Iterator[str]:
    """A model's mask: the cache's own if it has one, none for one token, else an array."""
    five, one = mx.zeros((2, 5, 3)), mx.zeros((2, 1, 3))
    for hidden, window, array in itertools.product((five, one), (None, 3), (False, True)):
        asked = _Asked()
        options = {"window_size": window, "return_array": array}
        if module.create_attention_mask(hidden, asked, **options) != "its own":
            yield "the cache's own mask is not taken"
        if asked.given != ((hidden.shape[1],), options):
            yield f"a cache is asked for {asked.given}"
        if module.create_ssm_mask(hidden, asked) != "its own":
            yield "the cache's own mask of recurrent layers is not taken"
        if asked.given != ((hidden.shape[1],), {}):
            yield f"a cache is asked for {asked.given} for recurrent layers"
    asked = _Asked()
    module.create_attention_mask(five, asked)
    if asked.given != ((5,), {"window_size": None, "return_array": False}):
        yield f"without options a cache is asked for {asked.given}"
    for cache in (None, object()):
        if module.create_ssm_mask(five, cache) is not None:
            yield "recurrent layers have a mask without a cache that has one"
        yield from _without(module, five, one, cache)


def _without(module: ModuleType, five: mx.array, one: mx.array, cache: Any) -> Iterator[str]:
    make = partial(module.create_attention_mask, cache=cache)
    names = (make(five), make(five, window_size=5), make(one), make(one, return_array=True))
    if names != ("causal", "causal", None, None):
        yield f"without a cache's own, masks are {names}"
    for window, options in ((3, {}), (4, {}), (None, {"return_array": True})):
        got = make(five, window_size=window, **options)
        wanted = causal_mask(5, 0, window, [0], [0])[0, 0]
        if not isinstance(got, mx.array) or (np.array(got) != wanted).any():
            yield f"with a window of {window} and {options} the mask is another"


def _drawn(seed: int, heads: int, tokens: int) -> mx.array:
    draw = np.random.default_rng(seed).normal(0, 1, (_ROWS, heads, tokens, _SIZE))
    return mx.array(draw.astype(np.float32))


def _packed(arrays: Sequence[mx.array], group: int, bits: int) -> tuple[list[Any], list[mx.array]]:
    """The quantized arrays, and their dequantized values."""
    found = [mx.quantize(one, group_size=group, bits=bits) for one in arrays]
    return found, [mx.dequantize(*one, group_size=group, bits=bits) for one in found]


def attention(qkv: Sequence[Any], scale: float, seen: Any, more: Any = 0.0) -> np.ndarray:
    """Softmax attention over the visible keys, with shared keys and values.

    Args:
        qkv: queries, keys and values, ``[rows, heads, tokens, size]``.
        seen: which keys each token sees, with the axes of scores.
        more: added to the scores.
    """
    q, k, v = (np.array(x).astype(np.float64) for x in qkv)
    each = q.shape[1] // k.shape[1]
    k, v = np.repeat(k, each, axis=1), np.repeat(v, each, axis=1)
    scores = np.where(seen, q @ np.swapaxes(k, -1, -2) * scale + more, -np.inf)
    shares = np.exp(scores - scores.max(-1, keepdims=True))
    return np.asarray(shares / shares.sum(-1, keepdims=True) @ v)


def _quantized(module: ModuleType) -> Iterator[str]:
    """Quantized attention, compared with attention over the dequantized keys and values."""
    call = module.quantized_scaled_dot_product_attention
    for heads, tokens, (group, bits) in itertools.product(
        (_HEADS, 2 * _HEADS, 3 * _HEADS), (1, 4), ((64, 8), (32, 4))
    ):
        queries, keys, values = _drawn(1, heads, tokens), _drawn(2, _HEADS, 7), _drawn(3, _HEADS, 7)
        by = {"group_size": group, "bits": bits}
        packed, plain = _packed((keys, values), group, bits)
        rows = causal_mask(tokens, 7 - tokens, None, [0] * _ROWS, [2, 0, 1])
        lower = np.tri(tokens, 7, 7 - tokens, dtype=bool)
        bias = np.random.default_rng(4).normal(0, 1, (_ROWS, 1, tokens, 7)).astype(np.float32)
        flat = bias[0, 0]
        masks: dict[str, tuple[Any, Any, Any]] = {
            "none": (None, True, 0.0),
            "causal": ("causal", lower, 0.0),
            "of rows": (mx.array(rows), rows, 0.0),
            "of all": (mx.array(lower), lower, 0.0),
            "added to rows": (mx.array(bias), True, bias),
            "added to all": (mx.array(flat), True, flat),
        }
        for name, (mask, seen, more) in masks.items():
            options = {} if bits == 8 else by
            got = call(mx.array(queries), *packed, 0.3, mask, **options)
            wanted = attention((queries, *plain), 0.3, seen, more)
            away = np.abs(np.array(got) - wanted).max() if got.shape == wanted.shape else np.inf
            if not away <= _NOISE:
                yield f"{heads} heads, {tokens} tokens, {bits} bits, mask {name}: {away:.1g} off"


def _half(module: ModuleType) -> Iterator[str]:
    """Many keys in half precision: shares must be summed in single precision."""
    queries, keys, values = _drawn(1, _HEADS, 1), _drawn(2, _HEADS, 256), _drawn(3, _HEADS, 256)
    packed, plain = _packed((keys, values + 4), 64, 8)
    half = [tuple(x if x.dtype == mx.uint32 else x.astype(mx.bfloat16) for x in p) for p in packed]
    call = module.quantized_scaled_dot_product_attention
    got = call(queries.astype(mx.bfloat16), *half, 0.01, None).astype(mx.float32)
    wanted = attention((queries, *plain), 0.01, True)
    if not np.abs(np.array(got) - wanted).max() <= _HALF * np.abs(wanted).max():
        yield "of many keys in bfloat16 it is another"


def _which(module: ModuleType) -> Iterator[str]:
    """The cache's bits select the function; sinks are refused with bits and taken without."""
    queries, keys, values = _drawn(1, 4, 2), _drawn(2, _HEADS, 7), _drawn(3, _HEADS, 7)
    call, lower = module.scaled_dot_product_attention, np.tri(2, 7, 5, dtype=bool)
    for group, bits in ((64, 8), (32, 4)):
        by = {"group_size": group, "bits": bits}
        packed, plain = _packed((keys, values), group, bits)
        cache = SimpleNamespace(**by)
        for mask, seen in (("causal", lower), (None, True)):
            got = call(mx.array(queries), *packed, cache, scale=0.3, mask=mask)
            if np.abs(np.array(got) - attention((queries, *plain), 0.3, seen)).max() > _NOISE:
                yield f"with a cache of {bits} bits and the mask {mask} it is another"
        try:
            call(queries, *packed, cache, scale=0.3, mask=None, sinks=mx.zeros((4,)))
        except ValueError as error:
            if "sinks" not in str(error):
                yield f"sinks are refused without their name: {error}"
        else:
            yield f"sinks are taken with {bits} bits"
    sinks = np.array([0.5, -1.0, 2.0, 0.0], np.float32)
    for mask, seen in (("causal", lower), (None, True)):
        got = call(queries, keys, values, None, scale=0.3, mask=mask)
        if np.abs(np.array(got) - attention((queries, keys, values), 0.3, seen)).max() > _NOISE:
            yield f"with the mask {mask} it is another"
        got = call(queries, keys, values, None, scale=0.3, mask=mask, sinks=mx.array(sinks))
        # A sink is one more key with a given score and no value.
        zero = np.zeros((_ROWS, _HEADS, 1, _SIZE), np.float32)
        more = np.zeros((4, 2, 8))
        more[..., 7] = sinks[:, None]
        all_seen = np.concatenate([np.broadcast_to(seen, (2, 7)), np.ones((2, 1), bool)], -1)
        wider = [np.concatenate([np.array(one), zero], axis=2) for one in (keys, values)]
        if np.abs(np.array(got) - attention((queries, *wider), 0.3, all_seen, more)).max() > _NOISE:
            yield f"with sinks and the mask {mask} it is another"
