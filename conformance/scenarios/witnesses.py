"""Witnesses: each decides from a trace whether a schedule reached its scenario's purpose."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

from conformance.core.engine import Capability
from conformance.core.schedule import Stage
from conformance.core.trace import Trace
from conformance.scenarios.scenario import Witness

# Nothing is padded if each prompt is prefilled by itself.
TOGETHER = frozenset({Capability.TOGETHER})


def rows_together(count: int) -> Witness:
    """At least ``count`` rows were decoded in one model call."""
    return Witness(
        f"{count} rows in one decode call",
        lambda trace: any(c.length == 1 and c.batch >= count for c in trace.forwards),
        shared=True,
        rows=count,
    )


def one_row_calls() -> Witness:
    """All model calls had one row."""
    return Witness("calls of one row", lambda t: bool(t.forwards) and _max_batch(t) == 1)


def prefill_together(count: int) -> Witness:
    """At least ``count`` prompts were prefilled in one model call."""
    return Witness(
        f"{count} prompts in one prefill call",
        lambda trace: any(c.length > 1 and c.batch >= count for c in trace.forwards),
        needs=TOGETHER,
        shared=True,
    )


def padding() -> Witness:
    """A prefill step computed more positions than it had prompt tokens."""
    return Witness(
        "padding in prefill",
        lambda trace: padded_positions(trace) > 0,
        needs=TOGETHER,
        shared=True,
    )


def no_padding() -> Witness:
    """No step computed a padded position."""
    return Witness("no padding", lambda trace: padded_positions(trace) == 0)


def padded_positions(trace: Trace) -> int:
    """Positions computed in prefill beyond the prompts' tokens, over the whole run.

    A call of one column is a decode call or the last piece of a prompt, which is never padded.
    """
    total = 0
    for step in trace.steps:
        computed = sum(c.positions for c in step.forwards if c.length > 1)
        real = sum(step.output.processed.values())
        # The last token of each prompt is processed separately, in a call of one column.
        total += max(0, computed - real) if computed else 0
    return total


def chunks(count: int) -> Witness:
    """Some prompt was processed in at least ``count`` steps, including that of its last token.

    For an engine that does everything in one step, this many prefill calls in it are required.
    """

    def seen(trace: Trace) -> bool:
        working = [step for step in trace.steps if step.forwards]
        if len(working) == 1:
            return sum(call.length > 1 for call in working[0].forwards) >= count
        pieces = Counter(
            name for step in working for name, done in step.output.processed.items() if done
        )
        return max(pieces.values(), default=0) >= count

    return Witness(f"a prompt in {count} pieces", seen, cut=True)


def late_join() -> Witness:
    """A request arrived while another had produced tokens, and both then decoded together."""

    def seen(trace: Trace) -> bool:
        produced: set[str] = set()
        joined: set[tuple[str, str]] = set()
        for step in trace.steps:
            queued = step.in_stage(Stage.QUEUED)
            decoding = step.in_stage(Stage.DECODE)
            joined |= {(late, early) for late in queued for early in decoding if early in produced}
            if any(late in decoding and early in decoding for late, early in joined):
                return True
            produced |= {event.request_id for event in step.output.events}
        return False

    return Witness("a late join while another decodes", seen)


def leaves_early(*, of: int = 2) -> Witness:
    """The number of rows in decode calls fell, from at least ``of``, while some continued."""

    def seen(trace: Trace) -> bool:
        batches = [c.batch for c in trace.forwards if c.length == 1]
        return any(0 < later < earlier >= of for earlier, later in pairwise(batches))

    name = "a row that ends before others"
    return Witness(f"{name} of {of}" if of > 2 else name, seen, shared=True, rows=of)


def long_prompt(count: int) -> Witness:
    """A prompt of more than ``count`` tokens was processed to its end."""

    def seen(trace: Trace) -> bool:
        done = Counter[str]()
        for step in trace.steps:
            done.update(step.output.processed)
        ended = {e.request_id for step in trace.steps for e in step.output.events}
        return any(done[name] > count for name in ended)

    return Witness(f"a prompt of more than {count} tokens", seen)


def many_tokens(count: int) -> Witness:
    """A request produced ``count`` tokens."""
    return Witness(
        f"an output of {count} tokens",
        lambda trace: any(
            len(trace.events(r.request_id)) >= count for r in trace.schedule.requests
        ),
    )


def waits_for_slot() -> Witness:
    """More requests than slots, and never more rows than slots."""

    def seen(trace: Trace) -> bool:
        slots = trace.schedule.options.completion_batch_size
        return len(trace.schedule.requests) > slots and 0 < _max_batch(trace) <= slots

    return Witness("a request that waits for a slot", seen)


def removed_from(stage: Stage, *, among: int = 1) -> Witness:
    """A request was removed while in ``stage``, with at least ``among`` requests in that stage."""

    def seen(trace: Trace) -> bool:
        for step in trace.steps:
            gone = [n for n, at in step.removed_from.items() if at is stage]
            if gone and len(gone) + len(step.in_stage(stage)) >= among:
                return True
        return False

    name = f"a removal in {stage}" + (f" among {among}" if among > 1 else "")
    return Witness(name, seen, rows=0 if stage is Stage.QUEUED else among)


def longest_leaves(stage: Stage) -> Witness:
    """The longest prompt was removed in ``stage``, and the only other row was completed.

    See ``last_rows_left``.
    """
    return Witness(
        f"a row whose longer neighbour was removed in {stage}",
        lambda trace: bool(last_rows_left(trace, stage)),
        needs=TOGETHER if stage is Stage.PREFILL else frozenset(),
    )


def last_rows_left(trace: Trace, stage: Stage) -> set[str]:
    """Requests that were completed after their only neighbour, a longer prompt, was removed.

    Both were in ``stage``. In prefill the longer one had processed fewer tokens than the difference
    of lengths, so that an engine with left padding had not yet reached the shorter one's tokens.
    """
    found, done = set[str](), Counter[str]()
    lengths = {r.request_id: len(r.prompt) for r in trace.schedule.requests}
    for step in trace.steps:
        gone = [n for n, at in step.removed_from.items() if at is stage]
        left = step.in_stage(stage)
        if len(gone) == len(left) == 1:
            longer = lengths[gone[0]] - lengths[left[0]]
            if longer > (done[gone[0]] if stage is Stage.PREFILL else 0):
                found.add(left[0])
        done.update(step.output.processed)
    return {name for name in found if trace.stream(name).finish_reason}


def follow_up() -> Witness:
    """A request that arrived after a removal was completed."""

    def seen(trace: Trace) -> bool:
        removed = False
        later: set[str] = set()
        known: set[str] = set()
        for step in trace.steps:
            removed = removed or bool(step.removed_from)
            if removed:
                later |= set(step.stages) - known
            known |= set(step.stages)
            for event in step.output.events:
                if event.request_id in later and event.finish_reason is not None:
                    return True
        return False

    return Witness("a follow-up request that ends", seen)


def _max_batch(trace: Trace) -> int:
    return max((call.batch for call in trace.forwards), default=0)
