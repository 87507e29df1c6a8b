"""Defects of drafters: what they read of a batch whose rows have unlike lengths."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from conformance.core.faults.declaration import Hits
from conformance.core.faults.patching import Patch, Right, together, wrap
from conformance.core.mends import mend
from conformance.plugins.mlx_vlm.library_parts import cache_class, part


@mend("eagle3-padding-of-the-first-cache")
def padding_of_a_cache_of_keys(hits: Hits) -> Patch:
    """The padding of a batch is that of a cache which keeps all keys."""

    def padding(right: Right, caches: Sequence[Any]) -> Any:
        said, found = right(caches), right(_of_all_keys(caches) or caches)
        hits.hit_if(said is not None and said.tolist() != found.tolist())
        return found

    return wrap(part("speculative.eagle3"), "_batch_cache_left_padding", padding)


def _of_all_keys(caches: Sequence[Any]) -> list[Any]:
    leaves = part("speculative.cache_state").iter_leaf_caches(caches)
    return [cache for cache in leaves if isinstance(cache, cache_class("BatchKVCache"))]


class _Unpadded:
    """Hidden states of a batch of prompts, each row of which is read without its padding."""

    def __init__(self, hidden: Any, padding: list[int]) -> None:
        self._hidden = hidden
        self._padding = padding
        self.shape = hidden.shape

    def __getitem__(self, row: slice) -> Any:
        return self._hidden[row, self._padding[row.start] :]


@mend("dflash-context-of-padding")
def context_has_no_padding(hits: Hits) -> Patch:
    """A drafter reads the hidden states of the prompt alone."""

    def rounds(
        right: Right, model: Any, drafter: Any, caches: Any, hidden: Any, **more: Any
    ) -> Any:
        padding = _of_all_keys(caches)[0].left_padding.tolist()
        hits.hit_if(any(padding))
        return right(model, drafter, caches, _Unpadded(hidden, padding), **more)

    return wrap(part("speculative.utils"), "_dflash_rounds_batch", rounds)


@mend("eagle3-key-of-padding")
def no_column_of_padding_is_a_key(hits: Hits) -> Patch:
    """The drafter's cache has as many columns of padding as the prompts."""
    drafter = part("speculative.drafters.eagle3.eagle3").Eagle3DraftModel

    def reset(right: Right, self: Any, target: Any, left_padding: Any = None) -> Any:
        right(self, target, left_padding)
        hits.hit_if(left_padding is not None and max(left_padding) > 0)
        self._cache = self.make_cache(left_padding)
        return self._cache

    return wrap(drafter, "reset", reset)


@mend("mtp-padding-unknown-to-drafter")
def padding_is_masked_in_the_drafter(hits: Hits) -> Patch:
    """A drafter's cache knows the padding of the prompts."""
    drafter = part("speculative.drafters.nemotron_h_mtp.nemotron_h_mtp").NemotronHMTPDraftModel
    rounds, batch = part("speculative.mtp"), cache_class("BatchKVCache")
    padding: list[int] = []

    def begin(right: Right, caches: Sequence[Any], size: int) -> Any:
        longest, positions = right(caches, size)
        padding[:] = [longest - position for position in positions]
        return longest, positions

    def make(right: Right, self: Any) -> Any:
        if not any(padding):
            return right(self)
        hits.hit()
        return [batch(padding) for _ in right(self)]

    def leave(right: Right, self: Any, keep: Any) -> None:
        whole = [cache for cache in self._cache if isinstance(cache, batch)]
        for cache in whole:
            cache.filter(keep)
        if whole:
            self._cache, kept = [], self._cache
            right(self, keep)
            self._cache = kept
        else:
            right(self, keep)

    def bind(right: Right, self: Any, *args: Any, **options: Any) -> None:
        """The first position is not read: attention has no RoPE here."""
        if not any(isinstance(cache, batch) for cache in self._cache):
            right(self, *args, **options)

    return together(
        wrap(rounds, "_mtp_cache_positions", begin),
        wrap(drafter, "set_shared_kv", bind),
        wrap(drafter, "make_cache", make),
        wrap(drafter, "filter_batch", leave),
    )


@mend("mtp-padding-of-the-whole-prompt")
def padding_is_that_of_the_last_tokens(hits: Hits) -> Patch:
    """A drafter that reads the last tokens of the prompts has the padding among these alone."""
    drafter = part("speculative.drafters.glm5_next_mtp.glm5_next_mtp").Glm5NextMTPDraftModel
    longest = 0

    def begin(right: Right, caches: Sequence[Any], size: int) -> Any:
        nonlocal longest
        found = right(caches, size)
        longest = found[0]
        return found

    def prefill(
        right: Right,
        self: Any,
        tokens: Any,
        *args: Any,
        left_padding: list[int] | None = None,
        **options: Any,
    ) -> None:
        read = [max(0, n - longest + tokens.shape[1]) for n in left_padding or ()]
        if left_padding is not None and read != left_padding:
            hits.hit()
            self._cache = self.make_cache(read)
            left_padding = read
        right(self, tokens, *args, left_padding=left_padding, **options)

    return together(
        wrap(part("speculative.mtp"), "_mtp_cache_positions", begin),
        wrap(drafter, "prefill_from_target_hidden", prefill),
    )
