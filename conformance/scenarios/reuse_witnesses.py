"""Witnesses about reused prefixes: which prompts reused one, and the rows next to them."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from conformance.core.engine import Capability
from conformance.core.pooled import StoreCall, Stored
from conformance.core.schedule import Stage
from conformance.core.trace import Step, Trace
from conformance.scenarios import foreseen
from conformance.scenarios.scenario import Witness

_STORED = frozenset({Capability.STORED})


def hit() -> Witness:
    """The start of a prompt was taken from an earlier prompt's cache."""
    return Witness(
        "a prefix that is reused",
        lambda trace: any(step.output.reused for step in trace.steps),
        reach=foreseen.hit,
        essential=True,
    )


def hit_of_part() -> Witness:
    """A prompt reused a part of an earlier one, up to where the two differ, or less.

    The shared part ends within a block, or within a sequence that was kept whole and then cut.
    """
    return Witness(
        "a prefix that ends within a block",
        lambda trace: foreseen.part_reused(trace.schedule, _reused(trace)),
        reach=foreseen.hit_of_part,
    )


def beside_cold() -> Witness:
    """A prompt that reuses a prefix and one that does not began in the same step."""

    def seen(trace: Trace) -> bool:
        return any(
            step.output.reused and began - set(step.output.reused)
            for step, began in _beginnings(trace)
        )

    return Witness("a reused prefix beside a prompt without one", seen, reach=foreseen.beside_cold)


def hit_with_processors() -> Witness:
    """A prompt with its own logits processors reused a prefix."""

    def seen(trace: Trace) -> bool:
        has = {r.request_id for r in trace.schedule.requests if r.processors}
        return any(has & set(step.output.reused) for step in trace.steps)

    return Witness(
        "processors over a reused prefix",
        seen,
        frozenset({Capability.PROCESSORS}),
        reach=foreseen.hit_with_processors,
    )


def late_hit() -> Witness:
    """A prompt that reuses a prefix began while another request decoded, which then continued."""

    def seen(trace: Trace) -> bool:
        return any(
            step.output.reused
            and set(step.in_stage(Stage.DECODE)) & set(after.in_stage(Stage.DECODE))
            for step, after in pairwise(trace.steps)
        )

    return Witness("a reused prefix while another request decodes", seen, reach=foreseen.late_hit)


def evicted() -> Witness:
    """A prompt was repeated after its first request had ended, and reused nothing."""

    def seen(trace: Trace) -> bool:
        ended: set[tuple[int, ...]] = set()
        prompts = {r.request_id: r.prompt for r in trace.schedule.requests}
        for step, began in _beginnings(trace):
            again = {name for name in began if prompts[name] in ended}
            if again - set(step.output.reused):
                return True
            ended |= {prompts[e.request_id] for e in step.output.events if e.finish_reason}
        return False

    return Witness("a prompt that comes again after its prefix was given up", seen)


def given_up(call: StoreCall) -> Witness:
    """A stored sequence was evicted by such a call, to make room or to be replaced."""

    def seen(trace: Trace) -> bool:
        calls = [made for step in trace.steps for made in step.output.stored]
        return any(
            after.call is call and {one.tokens for one in before.kept} - _or_prefixes(after)
            for before, after in pairwise(calls)
        )

    return Witness(f"a sequence given up at a call {call}", seen, needs=_STORED)


def kinds_kept(count: int) -> Witness:
    """Sequences of several kinds were stored, at once or one after the other."""
    return Witness(
        f"sequences of {count} kinds",
        lambda trace: (
            len({made.kind for step in trace.steps for made in step.output.stored if made.kind})
            >= count
        ),
        needs=_STORED,
    )


def _or_prefixes(call: Stored) -> set[tuple[int, ...]]:
    """The sequences stored after a call, and their prefixes, which a longer one may replace."""
    kept = {one.tokens for one in call.kept} | {call.tokens}
    return {tokens[:count] for tokens in kept for count in range(len(tokens) + 1)}


def removed(stage: Stage) -> Witness:
    """A request that had reused a prefix was removed while in ``stage``."""

    def seen(trace: Trace) -> bool:
        reused = _reused(trace)
        return any(
            at is stage and name in reused
            for step in trace.steps
            for name, at in step.removed_from.items()
        )

    return Witness(
        f"a removal in {stage} of a request that reused a prefix",
        seen,
        reach=foreseen.removed(stage),
    )


def _reused(trace: Trace) -> dict[str, int]:
    return {name: n for step in trace.steps for name, n in step.output.reused.items()}


def _beginnings(trace: Trace) -> Iterator[tuple[Step, set[str]]]:
    """Each step with the requests whose first prompt tokens it worked on."""
    known: set[str] = set()
    for step in trace.steps:
        worked = {name for name, count in step.output.processed.items() if count}
        yield step, worked - known
        known |= worked
