"""Faults of state that is not keys and values: where it is taken, how batches of it are joined."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Any

import mlx.core as mx

from conformance.core.faults.base import Hits, replaced
from conformance.plugins.mlx_vlm.faults.patching import fault, part

_CLASS = "recurrent state"
_NEEDS = ("cache:ArraysCache",)


def _arrays() -> Any:
    return part("models.cache").ArraysCache


def _at_padded_end(hits: Hits) -> AbstractContextManager[None]:
    """Models are told no lengths; caches, which mask by them and hand them on, know them."""
    real = vars(_arrays())["lengths"]

    def lengths(self: Any) -> Any:
        known = real.fget(self)
        asks = str(sys._getframe(1).f_globals["__name__"])
        if known is None or asks.endswith("models.cache"):
            return known
        hits.hit()
        return None

    return replaced(_arrays(), "lengths", property(lengths, real.fset))


@contextlib.contextmanager
def _one_side_alone(hits: Hits) -> Iterator[None]:
    """Where one of two batches has no padding to tell, the other's is taken for both.

    It takes effect in models that ask these caches for a mask; not all do.
    """
    real_extend, real_mask = _arrays().extend, _arrays().make_mask
    spoilt: set[int] = set()

    def extend(self: Any, other: Any) -> None:
        sides = [self.left_padding, other.left_padding]
        real_extend(self, other)
        told = [side for side in sides if side is not None]
        if len(told) == 1:
            spoilt.add(id(self))
            self.left_padding = told[0]

    def make_mask(self: Any, *args: Any, **options: Any) -> Any:
        if id(self) in spoilt:
            hits.hit()
        return real_mask(self, *args, **options)

    with replaced(_arrays(), "extend", extend), replaced(_arrays(), "make_mask", make_mask):
        yield


def _by_place(hits: Hits) -> AbstractContextManager[None]:
    real = _arrays().filter

    def filtered(self: Any, rows: Any) -> None:
        if rows.tolist() != list(range(rows.size)):
            hits.hit()
        real(self, mx.arange(rows.size))

    return replaced(_arrays(), "filter", filtered)


def _swapped_on_join(hits: Hits) -> AbstractContextManager[None]:
    real = _arrays().extend

    def extend(self: Any, other: Any) -> None:
        real(self, other)
        hits.hit()
        self.cache = [mx.roll(state, 1, 0) if state is not None else None for state in self.cache]

    return replaced(_arrays(), "extend", extend)


FAULTS = (
    fault(
        "A1.window-at-padded-end",
        _CLASS,
        "mlx-lm #1072",
        "the window of a convolution is taken at the padded end, not at each row's last token",
        _at_padded_end,
        kills="prefix_caching",
        where="cache:*",
        needs=_NEEDS,
    ),
    fault(
        "A9.padding-of-one-side-of-a-join",
        "cache merge",
        "mlx-lm #1072",
        "of two batches one of which has no padding the other's count stands for all rows",
        _one_side_alone,
        kills="staggered",
        where="crash:*cache.py*",
        needs=_NEEDS,
        crash=True,
    ),
    fault(
        "A9.state-of-another-row-on-filter",
        "cache merge",
        "mlx-lm #1072",
        "when rows leave, the first states stay",
        _by_place,
        kills="cancelled",
        where="cache:*ArraysCache:*",
        needs=_NEEDS,
    ),
    fault(
        "A9.state-of-another-row-on-join",
        "cache merge",
        "mlx-lm #1072",
        "a join gives each row its neighbour's state",
        _swapped_on_join,
        kills="staggered",
        where="cache:*ArraysCache:*",
        needs=_NEEDS,
    ),
)
