"""Caches of recurrent layers: states that are replaced, and lengths that mask padding."""

from __future__ import annotations

from collections.abc import Sequence
from types import ModuleType
from typing import Any

import mlx.core as mx
import numpy as np

from conformance.power.caches.finding import Problem, Problems
from conformance.power.caches.kinds.kind import Kind, as_numpy
from conformance.power.caches.kinds.visibility import decoded
from conformance.power.caches.rows import Array, Feed, Row, coded

_SLOTS = 2
_CONTEXT = 3
_SIZE = 4


class Recurrent(Kind):
    """Slot 0 holds the last tokens (a convolution's context), slot 1 the last token (a state)."""

    joins_while_prepared = True
    leaves_while_prepared = True
    checks_size = False

    def __init__(
        self, module: ModuleType, cls: type[Any], used: Sequence[int] = range(_SLOTS)
    ) -> None:
        super().__init__(module, cls)
        self._used = tuple(used)
        self._fed = False

    def new(self, padding: Sequence[int]) -> Any:
        """An empty cache with a row for each padding."""
        return self.cls(_SLOTS, left_padding=list(padding))

    @property
    def left_in_prepare(self) -> bool:
        """False: prepare() takes only lengths."""
        return False

    def partner(self) -> Kind:
        """The same class, with one row."""
        return RecurrentStream(self.module, self.cls, self._used)

    def offsets(self, cache: Any) -> list[int] | None:  # noqa: ARG002
        """None: the cache keeps no offsets."""
        return None

    def facts(self, cache: Any) -> set[str]:
        """The fact that a state was never set, if so."""
        unset = any(state is None for state in cache.cache)
        return super().facts(cache) | ({"unfilled"} if unset else set())

    def feed(self, cache: Any, feed: Feed) -> Problems:
        """Read mask and states, then set the next states, like a layer."""
        mask = cache.make_mask(feed.width)
        real = np.array([[token.real for token in tokens] for tokens in feed.grid])
        rows, width = real.shape
        if isinstance(mask, mx.array) and mask.ndim == 2:
            mask = mask[:, None, None]
        given = decoded(mask, rows=rows, width=1, columns=width)
        if isinstance(given, str):
            yield Problem("shape", given)
        elif (given[:, 0] != real).any():
            row = int((given[:, 0] != real).any(axis=1).argmax())
            yield Problem(
                "mask",
                f"slot {row}: columns {_true(given[row, 0])} count as real of {width}, "
                f"expected {_true(real[row])}",
            )
        if getattr(cache, "lengths", None) is not None:
            lengths = cache.lengths.tolist()
            wrong = [
                f"slot {row}: {length} tokens to come, {int(real[row].sum())} are in this piece"
                for row, length in enumerate(lengths)
                if max(0, min(length, width)) != real[row].sum()
            ]
            if wrong:
                yield Problem("lengths", wrong[0])
        yield from self._contents(cache, feed.rows)
        after = feed.after()
        for slot in self._used:
            cache[slot] = mx.array(self._state(after, slot)).astype(self.dtype)
        cache.advance(width)

    def _contents(self, cache: Any, rows: Sequence[Row]) -> Problems:
        for slot in self._used:
            if cache[slot] is None:
                if any(row.tokens for row in rows):
                    yield Problem("contents", f"state {slot} is None")
                continue
            found, wanted = as_numpy(cache[slot]), self._state(rows, slot)
            if found.shape != wanted.shape:
                yield Problem("shape", f"state {slot} of {found.shape}, expected {wanted.shape}")
            elif (found != wanted).any():
                row = int((found != wanted).reshape(len(rows), -1).any(axis=1).argmax())
                owners = [i for i in range(len(rows)) if (wanted[i] == found[row]).all()]
                text = f"holds that of slot {owners[0]}" if owners else "is of no row"
                yield Problem("contents", f"slot {row}: state {slot} {text}")

    def _state(self, rows: Sequence[Row], slot: int) -> Array:
        """The state of a correct layer after these tokens; zeros before the first."""
        count = _CONTEXT if slot == 0 else 1
        out = np.zeros((len(rows), 1, count, _SIZE), dtype=np.float32)
        for index, row in enumerate(rows):
            last = row.tokens[-count:]
            if last:
                out[index, :, count - len(last) :] = coded([last], heads=1, size=_SIZE, which=slot)
        return out[:, 0]


class RecurrentStream(Recurrent):
    """The single-stream cache."""

    single = True

    def new(self, padding: Sequence[int]) -> Any:  # noqa: ARG002
        """An empty cache."""
        return self.cls(_SLOTS)

    def partner(self) -> Kind:
        """The same class, with several rows."""
        return Recurrent(self.module, self.cls, self._used)


def _true(flags: Any) -> list[int]:
    return [int(index) for index in np.flatnonzero(flags)]
