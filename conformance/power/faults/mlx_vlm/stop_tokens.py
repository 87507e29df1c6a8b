"""Faults of the tokens that end a request."""

from __future__ import annotations

from functools import partial
from typing import Any

from conformance.core.faults.declaration import Hits
from conformance.core.faults.patching import Patch, Right, after, wrap
from conformance.plugins.mlx_vlm.library_parts import generator_class, part
from conformance.power.faults.mlx_vlm.tools import mlx_vlm_fault

_fault = partial(
    mlx_vlm_fault,
    fault_class="stop sequences",
    source="mutants of mlx_vlm/generate/ar.py that no check saw",
)


@_fault("G8.stop-taken-for-limit", kills=("early_finish/stop_tokens",))
def stop_taken_for_limit(hits: Hits) -> Patch:
    """A request that ends with a stop token is reported as one that reached its limit."""

    def limited(result: Any, *_: Any, **__: Any) -> Any:
        for response in result[1]:
            if response.finish_reason == "stop":
                hits.hit()
                response.finish_reason = "length"
        return result

    return after(generator_class(), "_next", limited)


@_fault(
    "G8.stop-within-a-draft-missed",
    needs=("drafter:*",),
    kills=("speculative/mtp_stop_tokens", "speculative/eagle3_stop_tokens"),
)
def stop_within_a_draft_missed(hits: Hits) -> Patch:
    """A stop token among accepted tokens does not end the request, only one by itself does."""

    def reason(right: Right, self: Any, row: int, token: int) -> Any:
        found = right(self, row, token)
        if found == "stop" and self._num_tokens[row] > 1:
            hits.hit()
            return None
        return found

    return wrap(part("generate.ar").SpeculativeGenerationBatch, "_finish_reason", reason)
