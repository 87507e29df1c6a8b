"""Removal: too late, of nobody, of somebody else; and ends that are taken for removals."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from conformance.core.faults.base import Hits
from conformance.core.faults.patching import all_of, exchange
from conformance.plugins.mlx_lm.faults.tools import generate, mlx_lm_fault

_GENERATOR = generate.BatchGenerator


def _decodes_on(right: Callable[..., Any], hits: Hits) -> Callable[..., Any]:
    def remove(self: Any, uids: Sequence[int], **options: Any) -> Any:
        decoding = [uid for uid in uids if uid in self._generation_batch.uids]
        if decoding:
            hits.hit()
        return right(self, [uid for uid in uids if uid not in decoding], **options)

    return remove


def _clean_end_as_stop(right: Callable[..., Any], hits: Hits) -> Callable[..., Any]:
    def step(self: Any) -> Any:
        responses = right(self)
        for response in responses:
            if response.finish_reason == "length":
                hits.hit()
                response.finish_reason = "stop"
        return responses

    return step


def _prefill_ignored(right: Callable[..., Any], hits: Hits) -> Callable[..., Any]:
    def remove(self: Any, uids: Sequence[int], **options: Any) -> Any:
        prompts = self._prompt_batch.uids
        ignored = [uid for uid in uids if uid in prompts] if len(prompts) > 1 else []
        if ignored:
            hits.hit()
        return right(self, [uid for uid in uids if uid not in ignored], **options)

    return remove


def _neighbour_removed(right: Callable[..., Any], hits: Hits) -> Callable[..., Any]:
    def remove(self: Any, uids: Sequence[int], **options: Any) -> Any:
        prompts = list(self._prompt_batch.uids)
        wrong = [
            prompts[(prompts.index(uid) + 1) % len(prompts)] if uid in prompts else uid
            for uid in uids
        ]
        if set(wrong) != set(uids):
            hits.hit()
        return right(self, wrong, **options)

    return remove


def _work_of_the_neighbour(right: Callable[..., Any], hits: Hits) -> Callable[..., Any]:
    def remove(self: Any, uids: Sequence[int], **options: Any) -> Any:
        prompts, work = list(self._prompt_batch.uids), list(self._currently_processing)
        answer = right(self, uids, **options)
        if 0 < len(self._currently_processing) < len(work):
            left = self._currently_processing
            keep = [(i + 1) % len(prompts) for i, uid in enumerate(prompts) if uid not in uids]
            wrong = [work[i] for i in keep]
            if any(mine is not theirs for mine, theirs in zip(wrong, left, strict=True)):
                hits.hit()
            self._currently_processing = wrong
        return answer

    return remove


class _Retried:
    """After a removal the interrupted step is done again, with its token in the caches already."""

    def __init__(self) -> None:
        self._due = False

    def at_removal(self, right: Callable[..., Any], _: Hits) -> Callable[..., Any]:
        def remove(generator: Any, uids: Sequence[int], **options: Any) -> Any:
            decoding = set(generator._generation_batch.uids)
            self._due = bool(decoding & set(uids)) and bool(decoding - set(uids))
            return right(generator, uids, **options)

        return remove

    def at_step(self, right: Callable[..., Any], hits: Hits) -> Callable[..., Any]:
        def step(batch: Any) -> Any:
            if self._due:
                hits.hit()
                batch.model(batch._next_tokens[:, None], cache=batch.prompt_cache)
                self._due = False
            return right(batch)

        return step


def _retried(hits: Hits) -> Any:
    retried = _Retried()
    return all_of(
        exchange(_GENERATOR, "remove", retried.at_removal),
        exchange(generate.GenerationBatch, "_step", retried.at_step),
    )(hits)


FAULTS = (
    mlx_lm_fault(
        name="B7.removed-row-decodes-on",
        fault_class="cancellation",
        source="mlx-vlm #1030",
        summary="A removed request keeps decoding until its own end.",
        needs=(),
        kills=("cancelled",),
        where="input:tokens|output:*",
        inject=exchange(_GENERATOR, "remove", _decodes_on),
    ),
    mlx_lm_fault(
        name="B8.end-taken-for-a-removal",
        fault_class="cancellation",
        source="mlx-vlm #1030",
        summary="A request that has produced all its tokens is told as stopped from outside.",
        needs=(),
        kills=("batch_of_one",),
        where="input:tokens|output:*",
        inject=exchange(generate.GenerationBatch, "next", _clean_end_as_stop),
    ),
    mlx_lm_fault(
        name="B10.prefill-not-removed",
        fault_class="cancellation",
        source="mlx-vlm #1030",
        summary="A removal while one of several rows in prefill does nothing.",
        needs=(),
        kills=("cancelled",),
        where="input:tokens|output:*",
        inject=exchange(_GENERATOR, "remove", _prefill_ignored),
    ),
    mlx_lm_fault(
        name="B10.neighbour-in-prefill-removed",
        fault_class="cancellation",
        source="mlx-vlm #1030",
        summary="A removal while one of several rows in prefill takes out the next row.",
        needs=(),
        kills=("cancelled",),
        where="input:tokens|output:*",
        inject=exchange(_GENERATOR, "remove", _neighbour_removed),
    ),
    mlx_lm_fault(
        name="B10.prompts-of-the-neighbours",
        fault_class="cancellation",
        source="mlx-vlm #1030",
        summary="After a removal in prefill each row goes on with the next row's prompt.",
        needs=(),
        kills=("cancelled",),
        where="input:tokens|output:*",
        inject=exchange(_GENERATOR, "remove", _work_of_the_neighbour),
    ),
    mlx_lm_fault(
        name="F11.step-done-again",
        fault_class="cancellation",
        source="issue trackers: retry after an abort",
        summary="After a removal in decode the next token is put into the caches twice.",
        needs=(),
        kills=("cancelled",),
        where="input:tokens|output:*",
        inject=_retried,
    ),
)
