"""Faults of state that is not keys and values: where it is taken, how batches of it are joined."""

from __future__ import annotations

import sys
from functools import partial
from typing import Any

import mlx.core as mx

from conformance.core.faults.declaration import Hits
from conformance.core.faults.patching import Patch, Right, after, before, replace, together, wrap
from conformance.plugins.mlx_vlm.library_parts import cache_class
from conformance.power.faults import shared_faults
from conformance.power.faults.mlx_vlm.tools import ARRAYS, mlx_vlm_fault

_fault = partial(mlx_vlm_fault, source="mlx-lm #1072", needs=ARRAYS)
_join = partial(_fault, fault_class="cache merge", where="cache:*ArraysCache:*")


@_fault(
    "A1.window-at-padded-end",
    fault_class="recurrent state",
    kills=("prefix_caching",),
    where="cache:*",
)
def window_at_padded_end(hits: Hits) -> Patch:
    """The window of a convolution is taken at the padded end, not at each row's last token.

    Models see no lengths; caches, which mask by them and hand them on, know them.
    """
    owner = cache_class("ArraysCache")
    real = vars(owner)["lengths"]

    def lengths(self: Any) -> Any:
        known = real.fget(self)
        reader = str(sys._getframe(1).f_globals["__name__"])
        if known is None or reader.endswith("models.cache"):
            return known
        hits.hit()
        return None

    return replace(owner, "lengths", property(lengths, real.fset))


@_join(
    "A9.padding-of-one-side-of-a-join",
    kills=("staggered",),
    where="crash:*cache.py*",
    crash=True,
)
def padding_of_one_side_of_a_join(hits: Hits) -> Patch:
    """Of two batches one of which has no padding the other's count stands for all rows.

    It takes effect in models that take their mask from these caches; not all do.
    """
    owner = cache_class("ArraysCache")
    spoilt: set[int] = set()

    def extend(right: Right, self: Any, other: Any) -> None:
        sides = [self.left_padding, other.left_padding]
        right(self, other)
        known = [side for side in sides if side is not None]
        if len(known) == 1:
            spoilt.add(id(self))
            self.left_padding = known[0]

    def effect(cache: Any, *_: Any, **__: Any) -> None:
        hits.hit_if(id(cache) in spoilt)

    return together(wrap(owner, "extend", extend), before(owner, "make_mask", effect))


@_join("A9.state-of-another-row-on-filter", kills=("cancelled",))
def state_of_another_row_on_filter(hits: Hits) -> Patch:
    """When rows leave, the first states stay."""

    def filter_rows(right: Right, self: Any, rows: Any) -> None:
        hits.hit_if(rows.tolist() != list(range(rows.size)))
        right(self, mx.arange(rows.size))

    return wrap(cache_class("ArraysCache"), "filter", filter_rows)


@_join("A9.state-of-another-row-on-join", kills=("staggered",))
def state_of_another_row_on_join(hits: Hits) -> Patch:
    """A join gives each row its neighbour's state."""

    def roll(_: None, self: Any, __: Any) -> None:
        hits.hit()
        self.cache = [mx.roll(state, 1, 0) if state is not None else None for state in self.cache]

    return after(cache_class("ArraysCache"), "extend", roll)


# In half precision what is lost is within the noise: only the dtypes show it.
@_join(
    "A9.states-in-half-precision",
    source="issue trackers: recurrent state in the precision of the weights",
    kills=("identical", "ragged"),
)
def states_in_half_precision(hits: Hits) -> Patch:
    """A batch keeps its states in half precision, where the single stream keeps float32."""
    return shared_faults.states_in_half_precision(cache_class("ArraysCache"), hits)
