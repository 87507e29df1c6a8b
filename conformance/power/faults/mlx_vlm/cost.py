"""Work and memory that the right answer does not need."""

from __future__ import annotations

from typing import Any

from conformance.core.engine_options import KV_GROUPS
from conformance.core.faults.declaration import Hits
from conformance.core.faults.patching import Patch, after, before
from conformance.plugins.mlx_vlm.library_parts import batch_class, cache_class, uniform_class
from conformance.power.faults.mlx_vlm.tools import ARRAYS, GROUPED, mlx_vlm_fault

# Decode steps: more than a prompt has pieces.
_MANY = 100


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


@mlx_vlm_fault(
    "D5.paddings-that-pile-up",
    fault_class="leak",
    source="mlx-vlm #1984",
    kills=("held/lasting",),
    needs=ARRAYS,
)
def paddings_that_pile_up(hits: Hits) -> Patch:
    """The padding that is left of each row is counted down in each step, and never computed."""

    def advance(cache: Any, count: int) -> None:
        if cache.left_padding is not None:
            cache.left = getattr(cache, "left", cache.left_padding) - count
            cache.steps = getattr(cache, "steps", 0) + 1
            # Some models drop the padding after the prompt.
            hits.hit_if(cache.steps > _MANY)

    return before(cache_class("ArraysCache"), "advance", advance)


@mlx_vlm_fault(
    "C5.next-tokens-read-at-once",
    fault_class="cost",
    source="mlx-vlm #1055",
    kills=("cost_reads",),
)
def next_tokens_read_at_once(hits: Hits) -> Patch:
    """The host waits for the next step's tokens as soon as they are begun."""

    def read(result: Any, batch: Any, *_: Any, **__: Any) -> Any:
        hits.hit()
        batch._next_tokens.tolist()
        return result

    return after(batch_class(), "_step", read)


@mlx_vlm_fault(
    "D5.groups-half-as-large",
    fault_class="cost",
    source="no report known",
    kills=("cost_quantized",),
    needs=GROUPED,
)
def groups_half_as_large(hits: Hits) -> Patch:
    """Quantized caches have a scale and a bias for half as many elements as was asked for."""

    def halved(_: None, cache: Any, *__: Any, **___: Any) -> None:
        if cache.group_size > min(KV_GROUPS):
            hits.hit()
            cache.group_size //= 2

    return after(uniform_class(), "__init__", halved)
