"""Faults of the prefix cache's snapshots, which are kept of caches that cannot be cut in blocks."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

from conformance.core.faults.base import Hits, replaced
from conformance.plugins.mlx_vlm.faults.patching import fault, part

_CLASS = "prefix cache"
_KILLS = "prefix_caching"
_SNAPSHOT = ("cache:ArraysCache|cache:RotatingKVCache",)


def _text_alone(hits: Hits) -> AbstractContextManager[None]:
    owner = part("apc")
    real = owner.semantic_extra_hash

    def of_text(**given: Any) -> int:
        right = real(**given)
        wrong: int = real(**{**given, "image_hash": 0, "media": None})
        if wrong != right:
            hits.hit()
        return wrong

    return replaced(owner, "semantic_extra_hash", of_text)


def _aliased(hits: Hits) -> AbstractContextManager[None]:
    """A snapshot is the live caches themselves."""
    owner = part("apc")

    def alias(prompt_cache: Any, *, min_capacity_tokens: Any = None) -> Any:
        del min_capacity_tokens
        hits.hit()
        return list(prompt_cache)

    return replaced(owner, "_clone_prompt_cache_for_apc", alias)


def _ring_as_line(hits: Hits) -> AbstractContextManager[None]:
    owner = part("models.cache").BatchRotatingKVCache
    real = owner.extract

    def extract(self: Any, idx: int) -> Any:
        if not self.rotated:
            return real(self, idx)
        hits.hit()
        newest, self.rotated, self._idx = self._idx, False, self.max_size
        try:
            return real(self, idx)
        finally:
            self.rotated, self._idx = True, newest

    return replaced(owner, "extract", extract)


FAULTS = (
    fault(
        "F8.key-of-text-alone",
        _CLASS,
        "issue trackers",
        "the key of a prompt says nothing of its image: the old image's keys are reused",
        _text_alone,
        kills=_KILLS,
        where="cache:*",
        # Blocks are never reused past a medium, whatever their key.
        needs=("modality:image|modality:video|modality:audio", *_SNAPSHOT),
    ),
    fault(
        "F4.snapshot-aliases-live-batch",
        _CLASS,
        "issue trackers",
        "a kept snapshot is the live cache, which goes on changing",
        _aliased,
        kills=_KILLS,
        where="cache:*",
        needs=("cache:RotatingKVCache",),
    ),
    fault(
        "F6.ring-taken-for-a-line",
        "cache extract",
        "issue trackers",
        "the snapshot of a window that went round begins in its middle",
        _ring_as_line,
        kills=_KILLS,
        where="cache:*",
        needs=("cache:RotatingKVCache",),
    ),
)
