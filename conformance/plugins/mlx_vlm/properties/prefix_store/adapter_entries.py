"""How mlx-vlm's prefix caching copies each class of cache."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import mlx.core as mx

from conformance.backend.cache_entries import arrays
from conformance.core.properties import Property
from conformance.plugins.mlx_vlm import compat
from conformance.plugins.mlx_vlm.properties.prefix_store import samples

adapters: Any = compat.part("apc_adapters")
caches: Any = compat.part("models.cache")

_FILE = "mlx_vlm/apc*.py"
# The functions that copy caches.
COPIED = (
    *("clone_cache_entry", "_state_clone", "_snapshot_*", "_copy_array", "_eval_tree"),
    *("_is_snapshotable", "_has_explicit_*", "_custom_*", "reserve_checkpoint_capacity"),
    *("CheckpointAdapter.*", "_clone_*", "resolve_capability"),
)
# Tokens that there must be room for, and the columns of a cache that grows by whole steps.
_MORE, _COLUMNS = 257, 512


def adapter_entry_properties() -> list[Property]:
    """Those of the functions that copy and restore caches."""
    return [
        Property("adapters: copies", _FILE, COPIED, _copies),
        Property("adapters: what has no copy", _FILE, COPIED, _refused),
        Property("adapters: contracts", _FILE, COPIED, _contracts),
        Property("adapters: room", _FILE, COPIED, _room),
    ]


def clone(cache: Any, more: int | None = None) -> tuple[Any, list[mx.array]]:
    """A copy with room for so many tokens, and its arrays that are to be computed."""
    targets: list[mx.array] = []
    made = adapters.clone_cache_entry(cache, min_capacity_tokens=more, eval_targets=targets)
    return made, targets


def _held(cache: Any) -> list[mx.array]:
    """All arrays of a cache, of its parts, too."""
    if isinstance(cache, tuple) or hasattr(cache, "caches"):
        return [a for c in getattr(cache, "caches", cache) for a in _held(c)]
    return [a for value in vars(cache).values() for a in arrays(value)]


def _copies() -> Iterator[str]:
    """Equal ones with arrays of their own, each of which is among those to be computed."""
    for name, make in {**samples.of_one_class(), **samples.empty()}.items():
        source = make()
        before = samples.content(source)
        copy, targets = clone(source)
        if samples.content(copy) != before:
            yield f"a copy of a {name} is {samples.content(copy)}, it was {before}"
        if not {id(a) for a in _held(copy)} <= {id(a) for a in targets}:
            yield f"an array of a copy of a {name} is not computed with it"
        for array in _held(source):
            array[...] = 0
        if samples.content(copy) != before:
            yield f"a copy of a {name} changes with it"


class _Own:
    """A cache of somebody else with a state of its own."""

    def __init__(self, state: Any) -> None:
        self.state, self.meta_state = state, "x"

    state = property(lambda self: self._state, lambda self, given: setattr(self, "_state", given))


class _Made(_Own):
    """One whose class makes it of a state."""

    @classmethod
    def from_state(cls, state: Any, meta_state: Any) -> Any:
        made = cls(state)
        made.meta_state = f"made of {meta_state}"
        return made


class _Dense:
    """Stands for a cache that gives its keys and values dequantized."""

    def __init__(self, keys: Any, values: Any) -> None:
        self._given = keys, values

    def dequantize_for_apc(self) -> tuple[Any, Any]:
        return self._given


def _refused() -> Iterator[str]:
    """Nothing of what has no state, alone or in a list; of what gives floats, these."""
    plain, other = samples.plain(), object()
    for name, cache in {
        "an object": other,
        "a list with an object": caches.CacheList(plain, other),
        "a tuple with an object": (other, plain),
        "a cache whose snapshot is none": _NoSnapshot(),
        "a batch in a list": caches.CacheList(plain, caches.BatchKVCache([0, 0])),
        "what can only be extracted": SimpleNamespace(extract=lambda _: plain),
    }.items():
        if clone(cache)[0] is not None:
            yield f"of {name} there is a copy"
    keys, values = samples.drawn(1, 1, 2, 5, 4), samples.drawn(2, 1, 2, 5, 6)
    copy, targets = clone(_Dense(keys, values))
    if type(copy) is not caches.KVCache or copy.offset != 5:
        yield f"of keys and values that are dequantized the copy is {copy}"
        return
    if not (mx.array_equal(copy.keys, keys) and mx.array_equal(copy.values, values)):
        yield "keys and values that are dequantized are others"
    if copy.keys is keys or not {id(copy.keys), id(copy.values)} <= {id(a) for a in targets}:
        yield "keys and values that are dequantized are not copied"
    for none in (_Dense(None, values), _Dense(keys, None)):
        copy, _ = clone(none)
        if type(copy) is not caches.KVCache or copy.keys is not None:
            yield "of keys without values there is a copy that is not empty"


class _NoSnapshot:
    prefix_cache_snapshot = None


class _Snapshot:
    """A cache of somebody else with a snapshot of its own."""

    def __init__(self) -> None:
        self.given: Any = None

    def prefix_cache_snapshot(self) -> Any:
        return {"a": self.given, "b": (1, "x")}

    def prefix_cache_restore(self, snapshot: Any) -> None:
        self.given = snapshot["a"]


class _Room(_Snapshot):
    """One that makes room, too."""

    def prefix_cache_reserve(self, tokens: int) -> Any:
        self.room = mx.zeros(tokens)
        return {"more": [self.room]}


def _contracts() -> Iterator[str]:
    """A state of one's own, and a snapshot of one's own, are captured and restored."""
    adapter = adapters.CheckpointAdapter()
    array = samples.drawn(1, 2, 3)
    wanted = array.tolist()
    own = _Own({"a": [array, None], "b": (array, 3)})
    copy, targets = clone(own)
    found = [copy.state["a"][0], copy.state["b"][0]]
    beside = copy.meta_state, copy.state["a"][1], copy.state["b"][1]
    if type(copy) is not _Own or beside != ("x", None, 3):
        yield f"a state of one's own is copied as {copy.state}"
    if not {id(a) for a in found} <= {id(a) for a in targets} or id(array) in map(id, found):
        yield "arrays of a state of one's own are not copied"
    if (made := clone(_Made([array]))[0]).meta_state != "made of x":
        yield f"a cache that its class makes is {made.meta_state}"
    snapshot = _Snapshot()
    snapshot.given = [array]
    copies = clone(snapshot)[0], _Snapshot()
    fragment = adapter.capture(snapshot, 3)
    adapter.restore(copies[1], fragment)
    if fragment.payload["b"] != (1, "x"):
        yield f"a snapshot is captured as {fragment.payload}"
    state = SimpleNamespace(state=[array], meta_state="m")
    other = SimpleNamespace(state=None, meta_state=None)
    adapter.restore(other, adapter.capture(state, 3))
    array[...] = 0
    for one in (found[0], found[1], *(c.given[0] for c in copies), other.state[0]):
        if one.tolist() != wanted:
            yield "what is captured is another array, or changes with its cache"
    if other.meta_state != "m":
        yield f"of a state what is beside it is restored as {other.meta_state}"
    for lacking in (SimpleNamespace(state=[]), SimpleNamespace(meta_state=""), object()):
        if adapter.capture(lacking, 3) is not None:
            yield f"{lacking} is captured"


def _room() -> Iterator[str]:
    """For a prompt that goes on, in whole steps and within lists, and only where it is asked."""
    for name, make in samples.of_one_class().items():
        wanted = samples.content(make())
        copy, targets = clone(make(), _MORE)
        if samples.content(copy) != wanted:
            yield f"a {name} with room is {samples.content(copy)}"
        if not {id(a) for a in _held(copy)} <= {id(a) for a in targets}:
            yield f"an array of a {name} with room is not computed with it"
        if name in ("KVCache", "QuantizedKVCache"):
            keys = copy.keys[0] if isinstance(copy.keys, tuple) else copy.keys
            if keys.shape[2] != _COLUMNS:
                yield f"a {name} has room for {keys.shape[2]} tokens, not {_MORE}"
    lists = caches.CacheList(samples.plain(), samples.window()), (samples.plain(),)
    for both in lists:
        targets = []
        adapters.reserve_checkpoint_capacity(both, min_capacity_tokens=_MORE, eval_targets=targets)
        first = both[0]
        if first.keys.shape[2] != _COLUMNS or [id(a) for a in targets] != [
            id(first.keys),
            id(first.values),
        ]:
            yield f"in a {type(both).__name__} there is room for {first.keys.shape[2]} tokens"
    for cache, more in ((_Room(), 5), (_Room(), None), (object(), 5)):
        targets = []
        adapters.reserve_checkpoint_capacity(cache, min_capacity_tokens=more, eval_targets=targets)
        asked = isinstance(cache, _Room) and more is not None
        if [a.size for a in targets] != [5] * asked or hasattr(cache, "room") != asked:
            yield f"room for {more} tokens is {targets}"
    adapters.reserve_checkpoint_capacity(plain := samples.plain(), min_capacity_tokens=_MORE)
    if plain.keys.shape[2] != _COLUMNS:
        yield "without arrays to be computed there is no room"
