"""Changes one input that a batch gives to its rows, to see whether any result depends on it.

A model gets these inputs from its caches: the mask, the lengths of rows that are padded on the
right, and the position of the next token. Changing one shows whether a defect in it would be
noticed.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import mlx.core as mx
from mlx.nn.layers.base import Module

from conformance.backend.cache_entries import leaves
from conformance.backend.disturb import seen_as

INPUTS = ("mask", "lengths", "cache position")


@dataclass
class Seen:
    """Calls with several rows: their number, how often a cache had the input, and was changed.

    Only inputs that the model reads can be changed.
    """

    calls: int = 0
    given: int = 0
    changed: int = 0


@contextlib.contextmanager
def altered(model: Module, name: str, seen: Seen) -> Iterator[None]:
    """In each call with several rows, make the input wrong for all rows but one.

    - mask: each row attends to what any row attends to, including padding;
    - lengths: each row is as long as the longest;
    - cache position: with one token per step, each row but the first is one position later.
    """
    base = type(model)

    @functools.wraps(base.__call__)
    def __call__(self: Module, *args: Any, **options: Any) -> Any:  # noqa: N807
        rows, length = _shape(args, options)
        entries = _caches(args, options) if rows > 1 else []
        seen.calls += bool(entries)
        ends = [end for entry in leaves(entries) for end in _change(entry, name, length, seen)]
        try:
            return base.__call__(self, *args, **options)
        finally:
            for end in ends:
                end()

    shown = {"__doc__": base.__doc__, "__module__": base.__module__}
    model.__class__ = type(base.__name__, (base,), {"__call__": __call__, **shown})
    try:
        yield
    finally:
        model.__class__ = base


def _change(entry: Any, name: str, length: int, seen: Seen) -> Iterator[Callable[[], None]]:
    """Change the input that this cache gives; yield functions that undo it."""
    if name == "mask":
        if hasattr(entry, "make_mask"):
            seen.given += 1
            yield _widened(entry, seen)
        return
    attribute = {"lengths": "lengths", "cache position": "offset"}[name]
    if not hasattr(entry, attribute):
        return
    seen.given += 1
    value = vars(entry).get(attribute)
    if not isinstance(value, mx.array) or value.ndim != 1 or (name != "lengths" and length > 1):
        return

    def wrong(true: Any) -> Any:
        changed = _longest(true) if name == "lengths" else _later(true)
        seen.changed += not mx.array_equal(changed, true).item()
        return changed

    yield seen_as(entry, attribute, wrong)


def _longest(lengths: mx.array) -> mx.array:
    return mx.broadcast_to(lengths.max(), lengths.shape)


def _later(offsets: mx.array) -> mx.array:
    """All rows but the first one position later."""
    return offsets + (mx.arange(offsets.size) > 0)


def _widened(entry: Any, seen: Seen) -> Callable[[], None]:
    """Masks of this cache let each row see what any row sees."""
    kind = type(entry)

    def make_mask(self: Any, *args: Any, **options: Any) -> Any:
        mask = kind.make_mask(self, *args, **options)
        if not isinstance(mask, mx.array) or mask.ndim < 2 or mask.shape[0] == 1:
            return mask
        widest = (
            mask.any(0, keepdims=True) if mask.dtype == mx.bool_ else mask.max(0, keepdims=True)
        )
        wrong = mx.broadcast_to(widest, mask.shape)
        seen.changed += not mx.array_equal(wrong, mask).item()
        return wrong

    entry.__class__ = type(kind.__name__, (kind,), {"make_mask": make_mask})

    def end() -> None:
        entry.__class__ = kind

    return end


def _shape(args: tuple[Any, ...], options: dict[str, Any]) -> tuple[int, int]:
    """Rows and tokens of a call, from its first argument with two axes."""
    for value in (*args[:1], *options.values()):
        if isinstance(value, mx.array) and value.ndim >= 2:
            return value.shape[0], value.shape[1]
    return 0, 0


def _caches(args: tuple[Any, ...], options: dict[str, Any]) -> Sequence[Any]:
    """The caches that a call was given, by name or as its second argument."""
    found = options.get("cache") or (args[1] if len(args) > 1 else None)
    return found if isinstance(found, list | tuple) else []
