"""Small defects for a single stream: positions that are off by one, wrong cache entries.

Other modules measure how much each of them changes the output.
"""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable, Iterator
from typing import Any

import mlx.core as mx

from conformance.backend.cache_entries import leaves


@contextlib.contextmanager
def shifted_rope(_: list[Any]) -> Iterator[Callable[[], bool]]:
    """Shift every rotary embedding by one position; masks and caches are unchanged."""
    calls: list[int] = []
    original = mx.fast.rope

    def rope(*args: Any, offset: Any, **options: Any) -> Any:
        calls.append(1)
        return original(*args, offset=offset + 1, **options)

    mx.fast.rope = rope
    try:
        yield lambda: bool(calls)
    finally:
        mx.fast.rope = original


@contextlib.contextmanager
def shifted_offsets(cache: list[Any]) -> Iterator[Callable[[], bool]]:
    """The caches return ``offset + 1`` to the model, and the true offset to their own methods."""
    reads: list[int] = []

    def shifted(true: Any) -> Any:
        reads.append(1)
        return true + 1

    for entry in leaves(cache):
        for name in ("offset", "cache_length"):
            if name in vars(entry):
                seen_as(entry, name, shifted)
    yield lambda: bool(reads)


def seen_as(entry: Any, name: str, change: Callable[[Any], Any]) -> Callable[[], None]:
    """Show the model a changed attribute of a cache, but the true value to the cache's methods.

    Returns a function that undoes it. What the model adds to the attribute is added to the true
    value.
    """
    kind = type(entry)
    state = {"true": vars(entry).pop(name), "depth": 0, "more": 0}

    def get(_: Any) -> Any:
        if state["depth"]:
            return state["true"]
        seen = change(state["true"])
        state["more"] = seen - state["true"]
        return seen

    def put(_: Any, value: Any) -> None:
        state["true"] = value if state["depth"] else value - state["more"]

    def inside(method_name: str) -> Callable[..., Any]:
        def method(self: Any, *args: Any, **options: Any) -> Any:
            state["depth"] += 1
            try:
                return getattr(kind, method_name)(self, *args, **options)
            finally:
                state["depth"] -= 1

        return method

    methods = {
        found: inside(found)
        for found in dir(kind)
        if not found.startswith("_") and callable(getattr(kind, found, None))
    }
    entry.__class__ = type(kind.__name__, (kind,), {**methods, name: property(get, put)})

    def end() -> None:
        entry.__class__ = kind
        vars(entry)[name] = state["true"]

    return end


def parts_of(entry: Any) -> Iterator[str]:
    """The names of the parts of a cache that can be wrong on their own."""
    if isinstance(getattr(entry, "keys", None), mx.array):
        yield "keys and values"
        return
    for name, value in vars(entry).items():
        if isinstance(value, mx.array) and value.ndim > 1 and value.size:
            yield name
        elif isinstance(value, list):
            yield from (
                f"{name}[{index}]" for index, item in enumerate(value) if isinstance(item, mx.array)
            )


def corrupt(entry: Any, stale: Any, name: str, age: int) -> bool:
    """Make one part of a cache wrong; ``False`` if that changes nothing."""
    if name == "keys and values":
        slots = int(entry.keys.shape[2])
        length = min(slots, int(getattr(entry, "offset", slots)))
        # The write index of a rotating cache, the end of the others.
        end = int(getattr(entry, "_idx", length)) or length
        wrong, right = (end - 1 - age) % length, (end - 1) % length
        for part in ("keys", "values"):
            array = getattr(entry, part)
            if array.shape[-1]:
                array[..., wrong, :] = array[..., right, :]
        return wrong != right and age < length
    attribute, _, rest = name.partition("[")
    if not rest:
        setattr(entry, attribute, _stale(getattr(entry, attribute), getattr(stale, attribute)))
        return True
    index = int(rest[:-1])
    array = getattr(entry, attribute)
    array[index] = _stale(array[index], getattr(stale, attribute)[index])
    return True


def exchange(entry: Any, other: Any, name: str) -> bool:
    """Put another row's entry into a cache; ``False`` if it does not fit."""
    if name == "keys and values":
        entry.keys, entry.values = mx.array(other.keys), mx.array(other.values)
        return True
    attribute, _, rest = name.partition("[")
    now, theirs = getattr(entry, attribute), getattr(other, attribute)
    if rest:
        index = int(rest[:-1])
        if theirs[index] is None or theirs[index].shape != now[index].shape:
            return False
        now[index] = mx.array(theirs[index])
        return True
    if theirs is None or theirs.shape != now.shape:
        return False
    setattr(entry, attribute, mx.array(theirs))
    return True


def _stale(now: mx.array, before: Any) -> mx.array:
    """The state of one token earlier or, if it does not fit, its entries in another order."""
    fits = isinstance(before, mx.array) and before.shape == now.shape
    if fits and not mx.array_equal(before, now).item():
        return mx.array(before)
    if now.shape[1] > 1:
        return mx.roll(now, 1, 1)
    return now * 1.1


def copy_cache(value: Any) -> Any:
    """A deep copy of caches that shares no array: updates write into arrays in place."""
    if isinstance(value, mx.array):
        return mx.array(value)
    if isinstance(value, list | tuple):
        return type(value)(copy_cache(item) for item in value)
    if isinstance(value, dict):
        return {key: copy_cache(item) for key, item in value.items()}
    if hasattr(value, "__dict__") and not isinstance(value, type):
        twin = copy.copy(value)
        twin.__dict__.update({key: copy_cache(item) for key, item in vars(value).items()})
        return twin
    return value
