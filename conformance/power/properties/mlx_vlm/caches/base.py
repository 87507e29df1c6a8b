"""Properties of mlx-vlm's caches that no sequence of batch methods reaches: what all have."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import mlx.core as mx
import numpy as np

from conformance.core.properties import Property
from conformance.power.properties.mlx_vlm.caches.parts import (
    FILE,
    caches,
    differs,
    drawn,
    refuses,
)


def cache_base_properties() -> list[Property]:
    """The property of ``_BaseCache``, and of the methods that ``ArraysCache`` has from it."""
    names = ("_BaseCache.*", "ArraysCache.*", "dynamic_roll")
    return [Property("caches: what all have", FILE, names, _all)]


class _Bare(caches._BaseCache):  # type: ignore[misc]
    """A cache without methods of its own."""


def _all() -> Iterator[str]:
    """A cache without methods has no state and no size, and cannot be cut or joined."""
    bare = _Bare()
    said = bare.state, bare.meta_state, bare.size(), bare.is_trimmable(), bare.memory_profile(3)
    if said != ([], "", 0, False, None) or bare.prefix_cache_merge([bare], [0]) is not None:
        yield f"a cache without methods says {said}"
    if bare.prefix_cache_snapshot() != {"state": [], "meta_state": ""}:
        yield f"it is kept as {bare.prefix_cache_snapshot()}"
    if tuple(bare.prefix_cache_reserve(9)) != ():
        yield "it makes room"
    nothings: list[Any] = [None, [], ()]
    for nothing in nothings:
        bare.state, bare.meta_state = nothing, nothing
    for name in ("state", "meta_state"):
        yield from refuses(ValueError, partial(setattr, bare, name), [1])
    if type(_Bare.from_state([], "")) is not _Bare:
        yield "it is not made of its state"
    yield from refuses(NotImplementedError, lambda: bare.nbytes)
    yield from refuses(NotImplementedError, bare.empty)
    states = caches.ArraysCache(2, [1, 4])
    states.lengths = mx.array([5, 2])
    states[1] = mx.ones((2, 3))
    back = caches.ArraysCache(1)
    back.prefix_cache_restore(states.prefix_cache_snapshot())
    for name, wanted in (("left_padding", [1, 4]), ("lengths", [5, 2])):
        yield from differs(getattr(back, name), np.array(wanted, np.int32), f"{name}, restored")
    yield from differs(back[1], np.ones((2, 3), np.float32), "a state that is restored")
    bare_states = {"state": [None], "meta_state": ""}
    back.prefix_cache_restore(bare_states)
    if (back.left_padding, back.lengths, back.state) != (None, None, [None]):
        yield "states of an older snapshot have padding or lengths"
    profile = states.memory_profile(2)
    if (profile.source_bytes, profile.fixed_bytes, profile.bytes_per_token) != (24, 24, 0):
        yield f"states take {profile}"
    for axis, shape in ((1, (2, 5)), (2, (2, 3, 5, 2))):
        given, shifts = drawn(axis, *shape), [1, 3]
        rolled = np.stack(
            [np.roll(one, by, axis - 1) for one, by in zip(given, shifts, strict=True)]
        )
        by = mx.array(shifts) if axis == 1 else mx.array(shifts)[:, None]
        yield from differs(caches.dynamic_roll(mx.array(given), by, axis), rolled, "rolled columns")
