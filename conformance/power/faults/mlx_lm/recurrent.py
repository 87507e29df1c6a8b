"""Recurrent layers: states and masks that do not know how long each row is."""

from __future__ import annotations

import sys
from functools import partial
from typing import Any

import mlx.core as mx
from mlx_lm.models import cache as caches
from mlx_lm.models.cache import ArraysCache

from conformance.backend.shared_faults import cast_down, differs
from conformance.core.faults.declaration import Hits
from conformance.core.faults.patching import Patch, Right, replace, wrap
from conformance.power.faults.mlx_lm.tools import RECURRENT, mlx_lm_fault

_fault = partial(
    mlx_lm_fault,
    fault_class="recurrent state",
    source="mlx-lm #1072",
    needs=(RECURRENT,),
    kills=("ragged", "chunked"),
    where="cache:*ArraysCache:*",
)


@_fault("A1.state-at-padded-end")
def state_at_padded_end(hits: Hits) -> Patch:
    """A recurrent state is taken at the padded end, not at the row's last token.

    The model sees no lengths; the cache's own methods, the mask's among them, see them.
    """

    def get(self: Any) -> Any:
        true = vars(self).get("lengths")
        reader = sys._getframe(1).f_code.co_filename
        if true is None or reader == caches.__file__:
            return true
        hits.hit()
        return None

    def put(self: Any, value: Any) -> None:
        vars(self)["lengths"] = value

    return replace(ArraysCache, "lengths", property(get, put))


# Padding on the right is later than all that a convolution looks back on.
@_fault("A11.mask-without-lengths", needs=(RECURRENT, "state:recurrence"))
def mask_without_lengths(hits: Hits) -> Patch:
    """The mask of recurrent layers lets padding on the right into the state."""

    def make_mask(right: Right, self: Any, n: int) -> Any:
        hits.hit_if(self.lengths is not None)
        with replace(self, "lengths", None):
            return right(self, n)

    return wrap(ArraysCache, "make_mask", make_mask)


@_fault(
    "A9.filter-keeps-the-first-states",
    fault_class="cache merge",
    kills=("early_finish", "cancelled"),
)
def filter_keeps_the_first_states(hits: Hits) -> Patch:
    """When rows leave, those that stay get the states of the first rows."""

    def filter_rows(right: Right, self: Any, keep: list[int]) -> None:
        states = list(self.cache)
        right(self, keep)
        for index, (old, new) in enumerate(zip(states, self.cache, strict=True)):
            if old is not None and differs(old[: len(keep)], new):
                hits.hit()
                self.cache[index] = old[: len(keep)]

    return wrap(ArraysCache, "filter", filter_rows)


# In half precision what is lost is within the noise: only the dtypes show it.
@_fault(
    "A9.states-in-half-precision",
    fault_class="cache merge",
    source="issue trackers: recurrent state in the precision of the weights",
    kills=("identical", "ragged"),
)
def states_in_half_precision(hits: Hits) -> Patch:
    """A batch keeps its states in half precision, where the single stream keeps float32."""

    def put(right: Right, self: Any, index: int, value: Any) -> None:
        many = isinstance(value, mx.array) and value.shape[0] > 1
        right(self, index, cast_down(value, hits) if many else value)

    return wrap(ArraysCache, "__setitem__", put)
