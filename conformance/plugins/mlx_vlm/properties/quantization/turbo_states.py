"""What holds vectors quantized by TurboQuant: cut, joined, padded, kept, beside plain arrays."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import mlx.core as mx
import numpy as np

from conformance.core.properties import Property
from conformance.plugins.mlx_vlm import compat
from conformance.plugins.mlx_vlm.properties.quantization.codec_numbers import Array

turboquant: Any = compat.part("turboquant")

_FILE = "mlx_vlm/turboquant.py"
_ROWS, _HEADS = 3, 2


def state_properties() -> list[Property]:
    """Those of states, whatever codec made them."""
    names = ("_*_state*", "_state_*", "_QuantizedStateProxy.*", "_packed_memory_profile")
    return [
        Property("states: cut and joined", _FILE, names, _states),
        Property("states: grown in place", _FILE, names, _grown),
        Property("states: seen as arrays", _FILE, names, _proxies),
    ]


def drawn_state(seed: int, tokens: int = 4) -> dict[str, Any]:
    """A state of each kind, of drawn numbers, by its name."""
    random = np.random.default_rng(seed)

    def norms() -> mx.array:
        shape = _ROWS, _HEADS, tokens
        return mx.array(random.normal(1, 1, shape).astype(np.float16))

    def packed(width: int) -> mx.array:
        return mx.array(random.integers(0, 9, (_ROWS, _HEADS, tokens, width)).astype(np.uint32))

    def plain(width: int) -> Any:
        return turboquant.TurboQuantMSEState(norms(), packed(width))

    radii = packed(5).astype(mx.float32)
    polar = turboquant.TurboQuantPolarState(radii, (packed(2), packed(3)))
    return {
        "plain": plain(3),
        "with signs": turboquant.TurboQuantProdState(norms(), packed(3), norms(), packed(2)),
        "polar": polar,
        "polar with signs": turboquant.TurboQuantPolarProdState(norms(), polar, norms(), packed(1)),
        "of two parts": turboquant.TurboQuantSplitState(plain(2), plain(4)),
    }


def leaves(state: Any) -> list[Array]:
    """The arrays of a state, in order."""
    if isinstance(state, mx.array):
        return [np.array(state)]
    return [leaf for part in state for leaf in leaves(part)]


def differs(got: Any, state: Any, change: Callable[[Array], Array]) -> bool:
    """Whether a state has not what ``change`` makes of each array of another, or is of a kind."""
    pairs = list(zip(leaves(got), [change(one) for one in leaves(state)], strict=True))
    alike = all(a.dtype == b.dtype and np.array_equal(a, b) for a, b in pairs)
    return type(got) is not type(state) or not alike


def _states() -> Iterator[str]:
    others = drawn_state(2, 3)
    order = [2, 0]
    for name, state in drawn_state(1).items():
        arrays = leaves(state)
        more = iter(leaves(others[name]))
        joined = turboquant._concat_state(state, others[name])

        def longer(a: Array, more: Iterator[Array] = more) -> Array:
            return np.concatenate([a, next(more)], 2)

        if differs(joined, state, longer):
            yield f"{name}: two are joined as others"
        rows = turboquant._concat_state_batch(state, state)
        cases: dict[str, tuple[Any, Callable[[Array], Array]]] = {
            "cut": (turboquant._slice_state(state, 3), lambda a: a[:, :, :3]),
            "cut out": (turboquant._slice_state_range(state, 1, 3), lambda a: a[:, :, 1:3]),
            "chosen": (turboquant._filter_state(state, mx.array(order)), lambda a: a[order]),
            "of more rows": (rows, lambda a: np.concatenate([a, a])),
            "as long": (turboquant._pad_state_tokens(state, 0, 0), lambda a: a),
            "padded": (turboquant._pad_state_tokens(state, 2, 1), lambda a: padded(a, 2, 1)),
            "after padding": (turboquant._pad_state_tokens(state, 2, 0), lambda a: padded(a, 2, 0)),
            "before": (turboquant._pad_state_tokens(state, 0, 1), lambda a: padded(a, 0, 1)),
            "empty": (turboquant._allocate_state_like(state, 5), lambda a: padded(a * 0, 0, 1)),
            "kept": (turboquant._concat_state(None, state), lambda a: a),
            "alone": (turboquant._concat_state(state, None), lambda a: a),
        }
        for what, (got, change) in cases.items():
            if differs(got, state, change):
                yield f"{name}: what is {what} is another"
        axes: list[bool] = []
        turboquant._map_state(state, lambda a, n, axes=axes: axes.append(a.ndim == n))
        turboquant._map_state_pair(state, state, lambda a, _, n, x=axes: x.append(a.ndim == n))
        if axes != [True] * 2 * len(arrays):
            yield f"{name}: arrays are said to have other axes"
        size = sum(one.nbytes for one in arrays)
        if (turboquant._state_nbytes(state), turboquant._state_length(state)) != (size, 4):
            yield f"{name}: it is said to be of {turboquant._state_nbytes(state)} bytes"
    yield from _none()


def padded(array: Array, left: int, right: int) -> Array:
    """With zeros before and after, along tokens."""
    return np.pad(array, [(0, 0), (0, 0), (left, right)] + [(0, 0)] * (array.ndim - 3))


def begun(array: Array, used: int, length: int) -> Array:
    """The first tokens, then zeros, along tokens."""
    return padded(array[:, :, :used], 0, length - used)


def _none() -> Iterator[str]:
    of_none = (
        turboquant._slice_state(None, 3),
        turboquant._slice_state_range(None, 1, 3),
        turboquant._map_state(None, None),
        turboquant._map_state_pair(None, None, None),
        turboquant._zero_state_row_tail(None, 0, 0, 1),
        turboquant._reserve_state_capacity(None, 0, 5, 4),
    )
    if any(one is not None for one in of_none):
        yield f"of no state there is {of_none}"
    if (turboquant._state_nbytes(None), turboquant._state_length(None)) != (0, 0):
        yield "no state has a size"
    if turboquant._state_nbytes(("text", 3)) != 0:
        yield "what is no array has bytes"
    other = object()
    refused: tuple[Callable[[], Any], ...] = (
        lambda: turboquant._concat_state(other, other),
        lambda: turboquant._slice_state(other, 1),
        lambda: turboquant._slice_state_range(other, 0, 1),
        lambda: turboquant._state_length(other),
        lambda: turboquant._allocate_state_like(other, 1),
        lambda: turboquant._map_state(other, None),
        lambda: turboquant._map_state_pair(other, other, None),
        lambda: turboquant._map_state_pair(None, drawn_state(1)["plain"], None),
    )
    for call in refused:
        try:
            call()
        except TypeError:
            continue
        yield "what is no state is taken"


def _grown() -> Iterator[str]:
    """Room for more tokens in whole steps, with what is used; a row's end is cleared in place."""
    for name, state in drawn_state(3).items():
        if turboquant._reserve_state_capacity(state, 3, 4, 8) is not state:
            yield f"{name}: what has room is copied"
        for used, needed, step, length in (
            *((3, 5, 8, 8), (3, 8, 8, 8), (3, 9, 8, 16)),
            *((3, 5, 3, 6), (1, 5, 8, 8), (0, 5, 8, 8)),
        ):
            grown = turboquant._reserve_state_capacity(state, used, needed, step)
            if differs(grown, state, partial(begun, used=used, length=length)):
                yield f"{name}: with room for {needed} in steps of {step} it is another"
        empty = turboquant._allocate_state_like(state, 6)
        turboquant._write_state(empty, state, 1)
        turboquant._write_state(empty, None, 0)
        if differs(empty, state, lambda a: padded(a, 1, 1)):
            yield f"{name}: it is written elsewhere"
        before = iter(leaves(state))
        cleared = turboquant._zero_state_row_tail(state, 1, 4, 4)
        cleared = turboquant._zero_state_row_tail(cleared, 1, 2, 4)

        def change(_: Array, before: Iterator[Array] = before) -> Array:
            kept = next(before).copy()
            kept[1, :, 2:4] = 0
            return kept

        if differs(cleared, state, change):
            yield f"{name}: another end is cleared"
    try:
        turboquant._write_state(object(), drawn_state(1)["plain"], 0)
        yield "something is written to what is no state"
    except TypeError:
        pass


def _proxies() -> Iterator[str]:
    """What a cache gives has the shape of keys, and is cut along tokens alone."""
    state = drawn_state(1)["plain"]
    proxy = turboquant._QuantizedStateProxy(state, 4, _HEADS)
    if proxy.shape != (1, _HEADS, 4, 0) or proxy.norms is not state.norms:
        yield f"what a cache gives has the shape {proxy.shape}"
    if [one.shape for one in proxy] != [one.shape for one in state]:
        yield "what a cache gives has other parts"
    every = slice(None)
    for key, end in (
        ((every, every, slice(3), every), 3),
        ((every, every, slice(0, -1)), 3),
        ((every, every, slice(9), every), 4),
        ((every, every), 4),
    ):
        got = proxy[key]
        if got.shape != (1, _HEADS, end, 0):
            yield f"cut by {key} it has the shape {got.shape}"
        if differs(got._state, state, partial(begun, used=end, length=end)):
            yield f"cut by {key} it is another"
    some = slice(0, 2)
    refused: tuple[Any, ...] = (
        slice(3),
        (every, every, 1),
        (every, every, slice(0, 4, 2)),
        (every, every, slice(1, 3)),
        (some, every, some),
        (every, some, some),
        (every, every, some, some),
    )
    for key in refused:
        try:
            proxy[key]
        except TypeError:
            continue
        yield f"it is cut by {key}"
    for capacity, each in ((4, 1.0), (0, 0)):
        arrays = mx.zeros((2,), mx.float16), None
        made = turboquant._packed_memory_profile(*arrays, capacity, 8)
        if (made.source_bytes, made.bytes_per_token, made.step) != (4, each, 8):
            yield f"of {capacity} tokens the memory is {made}"
        if turboquant._packed_memory_profile(*arrays, capacity).step != 1:
            yield "by default memory grows in other steps"
