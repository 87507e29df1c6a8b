"""The generator's own sampler and processors, and what processors are shown of their row."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import mlx.core as mx

from conformance.core.faults.declaration import Hits
from conformance.core.faults.patching import Patch, Right, after, together, wrap
from conformance.plugins.mlx_vlm.library_parts import (
    batch_class,
    generator_class,
    part,
    prompt_class,
)
from conformance.power.faults.mlx_vlm.tools import mlx_vlm_fault
from conformance.power.faults.shared_faults import (
    OUTPUT,
    differs,
    no_processors_after,
    nucleus_of_all_rows,
)

_fault = partial(
    mlx_vlm_fault,
    fault_class="samplers",
    source="no report: GenerationBatch keeps processors for rows that have any",
    where=OUTPUT,
)


def _lost(hits: Hits, *, joins: bool) -> Patch:
    """Rows with the generator's processors lose them: those that join, or those that are joined."""
    own: list[Any] = []

    def made(_: None, self: Any, *__: Any, **___: Any) -> None:
        own[:] = [self.logits_processors] if self.logits_processors else []

    def default(processors: Any) -> bool:
        return bool(own) and processors is own[0]

    def extend(right: Right, self: Any, other: Any) -> None:
        losing, beside = (other, self) if joins else (self, other)
        if any(p and not default(p) for p in beside.logits_processors if own):
            hits.hit_if(any(map(default, losing.logits_processors)))
            losing.logits_processors = [None if default(p) else p for p in losing.logits_processors]
        right(self, other)

    return together(
        after(generator_class(), "__init__", made), wrap(batch_class(), "extend", extend)
    )


@_fault("G1.processors-lost-to-others-that-join", kills=("samplers/own_joins_defaults",))
def processors_lost_to_others_that_join(hits: Hits) -> Patch:
    """When a row with processors of its own joins, rows with the generator's lose theirs."""
    return _lost(hits, joins=False)


@_fault("G1.processors-lost-beside-others", kills=("samplers/defaults_join_own",))
def processors_lost_beside_others(hits: Hits) -> Patch:
    """A row with the generator's processors that joins rows with their own loses them."""
    return _lost(hits, joins=True)


@_fault(
    "G2.no-processors-once-all-have-left",
    kills=("samplers/processors_leave",),
)
def no_processors_once_all_have_left(hits: Hits) -> Patch:
    """After the last row with processors has left, those that join get none."""
    return no_processors_after(batch_class(), None, hits)


@_fault(
    "G2.history-of-another-row",
    source="no report: prompts are sorted by length, and histories kept beside them",
    kills=("samplers/penalties",),
)
def history_of_another_row(hits: Hits) -> Patch:
    """Processors are shown the prompt of another row of the same prefill."""

    def made(_: None, self: Any, *__: Any, **___: Any) -> None:
        hits.hit_if(len(self._token_context) > 1)
        self._token_context.reverse()

    return after(prompt_class(), "__init__", made)


@_fault(
    "F2.top-p-threshold-over-rows",
    source="issue trackers: top-p in a batch",
    kills=("samplers/engines_top_p",),
)
def top_p_threshold_over_rows(hits: Hits) -> Patch:
    """The narrowest nucleus of all rows bounds the tokens of each."""
    return nucleus_of_all_rows(part("sample_utils"), hits)


@_fault(
    "F2.surprise-of-all-rows",
    source="a review: sampling parameters that no schedule set",
    kills=("samplers/engines_typical_p",),
)
def surprise_of_all_rows(hits: Hits) -> Patch:
    """Typical sampling measures a row's surprise by the mean entropy of all rows."""

    def apply_typical_p(right: Right, logprobs: mx.array, share: float) -> mx.array:
        true: mx.array = right(logprobs, share)
        probs = mx.exp(logprobs)
        entropy = -(probs * logprobs).sum(axis=-1).mean()
        order = mx.argsort(mx.abs(logprobs + entropy), axis=-1)
        nearer = mx.cumsum(mx.take_along_axis(probs, order, axis=-1), axis=-1, inclusive=False)
        above = mx.put_along_axis(mx.zeros_like(probs), order, nearer, axis=-1)
        wrong = mx.where(above < share, logprobs, -mx.inf)
        hits.hit_if(differs(wrong, true))
        return wrong

    return wrap(part("sample_utils"), "apply_typical_p", apply_typical_p)


_draw = partial(
    mlx_vlm_fault,
    fault_class="samplers",
    source="a review of what no check sees: how rows draw",
    kills=("distributions",),
)
Sampler = Callable[[mx.array], mx.array]


def _sampling(wrong: Callable[[Sampler, mx.array], mx.array], hits: Hits) -> Patch:
    """Rows that share a sampler are sampled by ``wrong(sampler, logprobs)``."""

    def sample(right: Right, sampler: Any, logprobs: mx.array, **options: Any) -> Any:
        if hasattr(sampler, "sample_target") or len(logprobs) == 1:
            return right(sampler, logprobs, **options)
        hits.hit()
        return wrong(sampler, logprobs)

    return wrap(part("generate.ar"), "_sample_with_positions", sample)


@_draw("G9.one-key-for-all-rows")
def one_key_for_all_rows(hits: Hits) -> Patch:
    """All rows draw with the same random numbers in a step."""

    def wrong(sampler: Sampler, logprobs: mx.array) -> mx.array:
        tokens = []
        for row in logprobs:
            mx.random.seed(hits.count)
            tokens.append(sampler(row[None]))
        return mx.concatenate(tokens)

    return _sampling(wrong, hits)


@_draw("G9.colder-beside-others")
def colder_beside_others(hits: Hits) -> Patch:
    """Rows that decode together are sampled 5% too cold."""
    return _sampling(lambda sampler, logprobs: sampler(logprobs * 1.05), hits)


@_draw("G9.sampler-given-the-row-before")
def sampler_given_the_row_before(hits: Hits) -> Patch:
    """A row's token is drawn by the logprobs of the row before it."""

    def wrong(sampler: Sampler, logprobs: mx.array) -> mx.array:
        return sampler(mx.concatenate([logprobs[-1:], logprobs[:-1]]))

    return _sampling(wrong, hits)
