"""Memory that the right answer does not need."""

from __future__ import annotations

from typing import Any

from conformance.core.faults.declaration import Hits
from conformance.core.faults.patching import Patch, after
from conformance.plugins.mlx_vlm.faults.tools import batch_class, mlx_vlm_fault


@mlx_vlm_fault(
    "D5.outputs-of-all-steps-kept",
    fault_class="leak",
    source="issue trackers: memory grows with every token",
    kills=("held/lasting",),
)
def outputs_of_all_steps_kept(hits: Hits) -> Patch:
    """A list keeps what each step gave, and nobody empties it."""
    kept: list[Any] = []

    def keep(responses: Any, batch: Any, *_: Any, **__: Any) -> Any:
        hits.hit_if(responses)
        kept.append(batch._next_tokens)
        return responses

    return after(batch_class(), "next", keep)
