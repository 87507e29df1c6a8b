"""Faults of the prefix cache's snapshots, which are kept of caches that cannot be cut in blocks."""

from __future__ import annotations

from functools import partial
from typing import Any

from conformance.backend.shared_faults import ring_as_line
from conformance.core.faults.declaration import Hits
from conformance.core.faults.patching import Patch, Right, wrap
from conformance.plugins.mlx_vlm.library_parts import cache_class, part
from conformance.power.faults.mlx_vlm.tools import MEDIUM, ROTATING, mlx_vlm_fault

_fault = partial(
    mlx_vlm_fault,
    fault_class="prefix cache",
    source="issue trackers",
    kills=("prefix_caching",),
    where="cache:*",
    needs=ROTATING,
)


# Blocks are never reused past a medium, whatever their key.
@_fault("F8.key-of-text-alone", needs=(MEDIUM, "cache:ArraysCache|cache:RotatingKVCache"))
def key_of_text_alone(hits: Hits) -> Patch:
    """The key of a prompt leaves out its image: the old image's keys are reused."""

    def of_text(right: Right, **given: Any) -> int:
        wrong: int = right(**{**given, "image_hash": 0, "media": None})
        hits.hit_if(wrong != right(**given))
        return wrong

    return wrap(part("apc"), "semantic_extra_hash", of_text)


@_fault("F4.snapshot-aliases-live-batch")
def snapshot_aliases_live_batch(hits: Hits) -> Patch:
    """A kept snapshot is the live cache, which goes on changing."""

    def alias(_: Right, prompt_cache: Any, **__: Any) -> Any:
        hits.hit()
        return list(prompt_cache)

    return wrap(part("apc"), "_clone_prompt_cache_for_apc", alias)


@_fault("F6.ring-taken-for-a-line", fault_class="cache extract")
def ring_taken_for_a_line(hits: Hits) -> Patch:
    """The snapshot of a window that was overwritten begins in its middle."""
    return ring_as_line(cache_class("BatchRotatingKVCache"), hits)
