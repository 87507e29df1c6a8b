"""Removal: too late, of nobody, of somebody else; and ends that are taken for removals."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from conformance.backend.shared_faults import OUTPUT, length_as_stop
from conformance.core.faults.declaration import Hits
from conformance.core.faults.patching import Patch, Right, after, together, wrap
from conformance.power.faults.mlx_lm.tools import generate, mlx_lm_fault

_GENERATOR, _BATCH = generate.BatchGenerator, generate.GenerationBatch
Uids = Sequence[int]
_fault = partial(
    mlx_lm_fault,
    fault_class="cancellation",
    source="mlx-vlm #1030",
    kills=("cancelled",),
    where=OUTPUT,
)


@_fault("B7.removed-row-decodes-on")
def removed_row_decodes_on(hits: Hits) -> Patch:
    """A removed request keeps decoding until its own end."""

    def remove(right: Right, self: Any, uids: Uids, **options: Any) -> Any:
        removed = [uid for uid in uids if uid not in self._generation_batch.uids]
        hits.hit_if(len(removed) < len(uids))
        return right(self, removed, **options)

    return wrap(_GENERATOR, "remove", remove)


@_fault("B8.end-taken-for-a-removal", kills=("batch_of_one",))
def end_taken_for_a_removal(hits: Hits) -> Patch:
    """A request that has produced all its tokens is reported as stopped from outside."""

    def stopped(responses: Any, _: Any) -> Any:
        length_as_stop(responses, hits)
        return responses

    return after(_BATCH, "next", stopped)


@_fault("B10.prefill-not-removed")
def prefill_not_removed(hits: Hits) -> Patch:
    """A removal while one of several rows in prefill does nothing."""

    def remove(right: Right, self: Any, uids: Uids, **options: Any) -> Any:
        prompts = self._prompt_batch.uids
        ignored = set(prompts) if len(prompts) > 1 else set()
        removed = [uid for uid in uids if uid not in ignored]
        hits.hit_if(len(removed) < len(uids))
        return right(self, removed, **options)

    return wrap(_GENERATOR, "remove", remove)


@_fault("B10.neighbour-in-prefill-removed")
def neighbour_in_prefill_removed(hits: Hits) -> Patch:
    """A removal while one of several rows in prefill takes out the next row."""

    def remove(right: Right, self: Any, uids: Uids, **options: Any) -> Any:
        prompts = list(self._prompt_batch.uids)
        after_it = dict(zip(prompts, prompts[1:] + prompts[:1], strict=True))
        wrong = [after_it.get(uid, uid) for uid in uids]
        hits.hit_if(set(wrong) != set(uids))
        return right(self, wrong, **options)

    return wrap(_GENERATOR, "remove", remove)


@_fault("B10.prompts-of-the-neighbours")
def prompts_of_the_neighbours(hits: Hits) -> Patch:
    """After a removal in prefill each row goes on with the next row's prompt."""

    def remove(right: Right, self: Any, uids: Uids, **options: Any) -> Any:
        prompts, work = list(self._prompt_batch.uids), list(self._currently_processing)
        answer = right(self, uids, **options)
        if 0 < len(self._currently_processing) < len(work):
            left = self._currently_processing
            keep = [(i + 1) % len(prompts) for i, uid in enumerate(prompts) if uid not in uids]
            wrong = [work[i] for i in keep]
            pairs = zip(wrong, left, strict=True)
            hits.hit_if(any(mine is not theirs for mine, theirs in pairs))
            self._currently_processing = wrong
        return answer

    return wrap(_GENERATOR, "remove", remove)


@_fault("F11.step-done-again", source="issue trackers: retry after an abort")
def step_done_again(hits: Hits) -> Patch:
    """After a removal in decode the next token is put into the caches twice.

    The interrupted step is done again, with its token in the caches already.
    """
    due = False

    def remove(right: Right, self: Any, uids: Uids, **options: Any) -> Any:
        nonlocal due
        decoding = set(self._generation_batch.uids)
        due = bool(decoding & set(uids)) and bool(decoding - set(uids))
        return right(self, uids, **options)

    def step(right: Right, batch: Any) -> Any:
        nonlocal due
        if due:
            hits.hit()
            batch.model(batch._next_tokens[:, None], cache=batch.prompt_cache)
            due = False
        return right(batch)

    return together(wrap(_GENERATOR, "remove", remove), wrap(_BATCH, "_step", step))
