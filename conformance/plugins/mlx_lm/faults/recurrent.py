"""Recurrent layers: states and masks that do not know how long each row is."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from typing import Any

from mlx_lm.models import cache as caches
from mlx_lm.models.cache import ArraysCache

from conformance.core.faults.base import Hits, replaced
from conformance.core.faults.patching import differs, exchange
from conformance.plugins.mlx_lm.faults.tools import RECURRENT, mlx_lm_fault


@contextlib.contextmanager
def _state_at_padded_end(hits: Hits) -> Iterator[None]:
    """The model sees no lengths; the cache's own methods, the mask's among them, see them."""

    def get(self: Any) -> Any:
        true = vars(self).get("lengths")
        asked_by = sys._getframe(1).f_code.co_filename
        if true is None or asked_by == caches.__file__:
            return true
        hits.hit()
        return None

    def put(self: Any, value: Any) -> None:
        vars(self)["lengths"] = value

    with replaced(ArraysCache, "lengths", property(get, put)):
        yield


def _mask_without_lengths(right: Callable[..., Any], hits: Hits) -> Callable[..., Any]:
    def make_mask(self: Any, n: int) -> Any:
        if self.lengths is None:
            return right(self, n)
        hits.hit()
        lengths, self.lengths = self.lengths, None
        try:
            return right(self, n)
        finally:
            self.lengths = lengths

    return make_mask


def _state_of_other_rows(right: Callable[..., Any], hits: Hits) -> Callable[..., Any]:
    def filter_rows(self: Any, keep: list[int]) -> None:
        before = list(self.cache)
        right(self, keep)
        for index, (old, new) in enumerate(zip(before, self.cache, strict=True)):
            if old is not None and differs(old[: len(keep)], new):
                hits.hit()
                self.cache[index] = old[: len(keep)]

    return filter_rows


FAULTS = (
    mlx_lm_fault(
        name="A1.state-at-padded-end",
        fault_class="recurrent state",
        source="mlx-lm #1072",
        summary="A recurrent state is taken at the padded end, not at the row's last token.",
        needs=(RECURRENT,),
        kills=("ragged", "chunked"),
        where="cache:*ArraysCache:*",
        inject=_state_at_padded_end,
    ),
    mlx_lm_fault(
        name="A11.mask-without-lengths",
        fault_class="recurrent state",
        source="mlx-lm #1072",
        summary="The mask of recurrent layers lets padding on the right into the state.",
        # Padding on the right is later than all that a convolution looks back on.
        needs=(RECURRENT, "state:recurrence"),
        kills=("ragged", "chunked"),
        where="cache:*ArraysCache:*",
        inject=exchange(ArraysCache, "make_mask", _mask_without_lengths),
    ),
    mlx_lm_fault(
        name="A9.filter-keeps-the-first-states",
        fault_class="cache merge",
        source="mlx-lm #1072",
        summary="When rows leave, those that stay get the states of the first rows.",
        needs=(RECURRENT,),
        kills=("early_finish", "cancelled"),
        where="cache:*ArraysCache:*",
        inject=exchange(ArraysCache, "filter", _state_of_other_rows),
    ),
)
