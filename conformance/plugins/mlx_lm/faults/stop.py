"""Stop sequences: matches across requests, or not across a join."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from conformance.core.faults.base import Hits
from conformance.core.faults.patching import exchange
from conformance.plugins.mlx_lm.faults.lists import cut_not_filtered
from conformance.plugins.mlx_lm.faults.tools import generate, mlx_lm_fault


def _anew_at_a_join(right: Callable[..., Any], hits: Hits) -> Callable[..., Any]:
    def extend(self: Any, batch: Any) -> None:
        right(self, batch)
        if any(matcher._node is not matcher._root for matcher in self._matchers):
            hits.hit()
        self._matchers = [stop.matcher() for stop in self.stop_sequences]

    return extend


FAULTS = (
    mlx_lm_fault(
        name="F14.match-goes-on-in-another-request",
        fault_class="stop sequences",
        source="issue trackers: stop sequences of a reused slot",
        summary="When a row leaves, the next one goes on with what it had matched.",
        needs=(),
        kills=("stop_sequences",),
        where="input:tokens|output:*",
        inject=cut_not_filtered("_matchers"),
    ),
    mlx_lm_fault(
        name="F14.match-begins-anew-at-a-join",
        fault_class="stop sequences",
        source="issue trackers: stop sequences of a reused slot",
        summary="When a request joins, all rows forget what they had matched so far.",
        needs=(),
        kills=("stop_sequences",),
        where="input:tokens|output:*",
        inject=exchange(generate.GenerationBatch, "extend", _anew_at_a_join),
    ),
)
