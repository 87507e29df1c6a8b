"""Stop sequences: matches across requests, or not across a join."""

from __future__ import annotations

from functools import partial
from typing import Any

from conformance.backend.shared_faults import OUTPUT, kept_by_place
from conformance.core.faults.declaration import Hits
from conformance.core.faults.patching import Patch, after
from conformance.plugins.mlx_lm.faults.tools import generate, mlx_lm_fault

_BATCH = generate.GenerationBatch
_fault = partial(
    mlx_lm_fault,
    fault_class="stop sequences",
    source="issue trackers: stop sequences of a reused slot",
    kills=("stop_sequences",),
    where=OUTPUT,
)


@_fault("F14.match-goes-on-in-another-request")
def match_goes_on_in_another_request(hits: Hits) -> Patch:
    """When a row leaves, the next one goes on with what it had matched."""
    return kept_by_place(_BATCH, "_matchers", hits)


@_fault("F14.match-begins-anew-at-a-join")
def match_begins_anew_at_a_join(hits: Hits) -> Patch:
    """When a request joins, all rows forget what they had matched so far."""

    def forget(_: None, self: Any, __: Any) -> None:
        hits.hit_if(any(matcher._node is not matcher._root for matcher in self._matchers))
        self._matchers = [stop.matcher() for stop in self.stop_sequences]

    return after(_BATCH, "extend", forget)
