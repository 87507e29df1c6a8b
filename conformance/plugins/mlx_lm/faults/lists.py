"""The lists beside a batch: entries that belong to another row."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from conformance.core.faults.base import Hits
from conformance.core.faults.patching import Injection, all_of, exchange
from conformance.plugins.mlx_lm.faults.tools import generate, mlx_lm_fault, shift

_BATCH = generate.GenerationBatch


def cut_not_filtered(name: str) -> Injection:
    """When rows leave, the list ``name`` of a batch is cut to its new length, not filtered."""

    def spoil(right: Callable[..., Any], hits: Hits) -> Callable[..., Any]:
        def filter_rows(self: Any, keep: Sequence[int]) -> None:
            wrong = shift(getattr(self, name), keep)
            right(self, keep)
            pairs = zip(wrong, getattr(self, name), strict=True)
            if any(mine is not theirs and mine != theirs for mine, theirs in pairs):
                hits.hit()
            setattr(self, name, wrong)

        return filter_rows

    return exchange(_BATCH, "filter", spoil)


def _first_token_lost(right: Callable[..., Any], hits: Hits) -> Callable[..., Any]:
    def init(self: Any, *args: Any, **options: Any) -> None:
        right(self, *args, **options)
        if self.uids:
            hits.hit()
            self._step()

    return init


def _logprobs_shifted(right: Callable[..., Any], hits: Hits) -> Callable[..., Any]:
    def extend(self: Any, batch: Any) -> None:
        mine = self._next_logprobs if self.uids else []
        rows = len(mine)
        right(self, batch)
        if rows and len(self._next_logprobs) > rows:
            hits.hit()
            self._next_logprobs = self._next_logprobs[rows:] + self._next_logprobs[:rows]

    return extend


def _logprobs_short(right: Callable[..., Any], hits: Hits) -> Callable[..., Any]:
    def extend(self: Any, batch: Any) -> None:
        rows = len(self.uids)
        right(self, batch)
        if rows and len(self._next_logprobs) > rows:
            hits.hit()
            self._next_logprobs = self._next_logprobs[:rows]

    return extend


class _OldTokens:
    """The tokens of the rows that left last speak for those who join the empty batch."""

    def __init__(self) -> None:
        self._tokens: Any = None

    def at_filter(self, right: Callable[..., Any], _: Hits) -> Callable[..., Any]:
        def filter_rows(batch: Any, keep: Sequence[int]) -> None:
            if not keep:
                self._tokens = batch._next_tokens
            right(batch, keep)

        return filter_rows

    def at_join(self, right: Callable[..., Any], hits: Hits) -> Callable[..., Any]:
        def extend(batch: Any, other: Any) -> None:
            was_empty = not batch.uids
            right(batch, other)
            if was_empty and self._tokens is not None:
                hits.hit()
                rows = min(self._tokens.size, batch._next_tokens.size)
                batch._next_tokens[:rows] = self._tokens[:rows]
                self._tokens = None

        return extend


def _old_tokens(hits: Hits) -> Any:
    old = _OldTokens()
    return all_of(
        exchange(_BATCH, "filter", old.at_filter), exchange(_BATCH, "extend", old.at_join)
    )(hits)


FAULTS = (
    mlx_lm_fault(
        name="B1.first-sampled-token-lost",
        fault_class="first token",
        source="mlx-vlm #1030",
        summary="A warm-up step discards the first token that is sampled for each request.",
        needs=(),
        kills=("batch_of_one",),
        where="input:tokens|output:*",
        inject=exchange(_BATCH, "__init__", _first_token_lost),
    ),
    mlx_lm_fault(
        name="B2.logprobs-of-other-rows",
        fault_class="list misalignment",
        source="mlx-vlm #1030",
        summary="After a join the logprobs are in another order than the rows.",
        needs=(),
        kills=("staggered", "ragged"),
        where="output:logprobs",
        inject=exchange(_BATCH, "extend", _logprobs_shifted),
    ),
    mlx_lm_fault(
        name="B2.logprobs-short",
        fault_class="list misalignment",
        source="mlx-vlm #1030",
        summary="After a join there are fewer logprobs than rows.",
        needs=(),
        kills=("staggered", "ragged"),
        where="crash:*generate.py*",
        inject=exchange(_BATCH, "extend", _logprobs_short),
        crash=True,
    ),
    mlx_lm_fault(
        name="B9.old-tokens-speak",
        fault_class="cancellation",
        source="mlx-vlm #1030",
        summary="A batch that was emptied keeps its tokens, which speak for those who join next.",
        needs=(),
        kills=("prompt_cache", "cancelled"),
        where="input:tokens|output:*",
        inject=_old_tokens,
    ),
    mlx_lm_fault(
        name="F1.sampler-inherited",
        fault_class="list misalignment",
        source="issue trackers: samplers after a row has left",
        summary="When a row leaves, the next one inherits its sampler.",
        needs=(),
        kills=("early_finish", "samplers"),
        where="input:tokens|output:*",
        inject=cut_not_filtered("samplers"),
    ),
    mlx_lm_fault(
        name="F1.processors-inherited",
        fault_class="list misalignment",
        source="issue trackers: samplers after a row has left",
        summary="When a row leaves, the next one inherits its logits processors.",
        needs=(),
        kills=("samplers",),
        where="input:tokens|output:*",
        inject=cut_not_filtered("logits_processors"),
    ),
    mlx_lm_fault(
        name="F15.limit-of-another-row",
        fault_class="list misalignment",
        source="issue trackers: max_tokens after a row has left",
        summary="When a row leaves, the next one inherits how many tokens it may produce.",
        needs=(),
        kills=("early_finish", "cancelled"),
        where="input:tokens|output:*",
        inject=cut_not_filtered("max_tokens"),
    ),
    mlx_lm_fault(
        name="F15.count-of-another-row",
        fault_class="list misalignment",
        source="issue trackers: max_tokens after a row has left",
        summary="When a row leaves, the next one inherits how many tokens it has produced.",
        needs=(),
        kills=("samplers", "stop_sequences"),
        where="input:tokens|output:*",
        inject=cut_not_filtered("_num_tokens"),
    ),
)
