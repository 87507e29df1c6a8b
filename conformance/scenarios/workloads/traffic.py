"""The workload ``traffic``: requests that come and go while others wait, prefill and decode."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import pairwise

from conformance.core.engine import Capability
from conformance.core.engine_options import EngineOptions
from conformance.core.schedule import Request, Schedule, Stage
from conformance.core.trace import Trace
from conformance.scenarios import witnesses as seen
from conformance.scenarios.build import PIECE, SHORT, produced, text_request, together
from conformance.scenarios.choices import Seeded
from conformance.scenarios.scenario import Brief, Scenario, Witness
from conformance.scenarios.workloads.mixing import (
    OF_DEFAULT,
    Scale,
    draw_rows,
    ends_of,
    stopping,
    traffic,
)

_SMALL = Scale(
    first=13, second=5, groups=(1, 3), longest=33, limits=(3, 9), lasting=24, emptied=True
)
_LARGE = Scale(
    first=29, second=5, groups=(10, 12), longest=40, limits=(5, 11), lasting=15, one_padded=True
)
# All at once: more than a function takes into one batch.
_WHOLE = replace(_LARGE, second=13, one_padded=False)
_SEVERAL = 3  # steps
# Tokens that the first row has when others come, and those more that it has when they join.
_MEETINGS, _BEFORE = (1, 3, 5), 2
_QUEUES = frozenset({Capability.SLOTS, Capability.LATE_JOIN})
_LEAVES = _QUEUES | {Capability.CANCEL, Capability.STAGES}
_DEFAULT_STOPS = frozenset({Capability.STOP, Capability.DEFAULTS})


def _traffic(brief: Brief) -> list[Schedule]:
    few = EngineOptions(prefill_step_size=PIECE, prefill_batch_size=2, completion_batch_size=4)
    large = _LARGE if Capability.LATE_JOIN in brief.capabilities else _WHOLE
    many = EngineOptions(prefill_batch_size=10, completion_batch_size=32)
    schedules = [_mixed(brief, "few_slots", 1, _SMALL, few), _mixed(brief, "many", 2, large, many)]
    late = Capability.LATE_JOIN in brief.capabilities
    return [*schedules, _lengths_meet(brief)] if late else schedules


def _lengths_meet(brief: Brief) -> Schedule:
    """Uneven pairs join an uneven pair when it is just longer, as long, just shorter than they are.

    Equal lengths need no padding on either side, but rows keep the padding that they have.
    """
    first = _pair(brief, "first", SHORT, 0)
    arrivals = [together(*first)]
    for number, (count, more) in enumerate(zip(_MEETINGS, (-1, 0, 1), strict=True), start=1):
        pair = _pair(brief, f"after{count}", SHORT + count + _BEFORE + more, number)
        arrivals.append(together(*pair, when=produced(first[0].request_id, count)))
    return Schedule("lengths_meet", tuple(arrivals))


def _pair(brief: Brief, name: str, longest: int, number: int) -> list[Request]:
    """Two rows that stay until all have joined; ends and removals would cut the padding."""
    lengths = {name: longest, f"{name}_shorter": longest - 3}
    return [
        text_request(brief, each, length, variant=number, max_tokens=_MEETINGS[-1] + 3)
        for each, length in lengths.items()
    ]


def _mixed(brief: Brief, name: str, number: int, scale: Scale, options: EngineOptions) -> Schedule:
    if not brief.plays(name):  # stop sequences need single streams of all rows
        brief = replace(brief, capabilities=brief.capabilities - _DEFAULT_STOPS)
    choices = Seeded(brief.seed, number)
    rows = draw_rows(brief, choices, scale)
    # One call that inserts no row with stop sequences of its own.
    by_engine = rows[scale.first :]
    if brief.capabilities >= _DEFAULT_STOPS:
        others = [row for at, row in enumerate(by_engine) if at != OF_DEFAULT]
        options = ends_of(brief, [row for row in others if row.max_tokens > 3][:2], options)
    given = {row.request_id for row in by_engine}
    stops = Capability.STOP in brief.capabilities
    ends = [stopping(brief, choices, options, given)] if stops else []
    return traffic(brief, choices, scale, rows, *ends, name=name, options=options)


def _waits(trace: Trace) -> bool:
    waiting = Counter(name for step in trace.steps for name in step.in_stage(Stage.QUEUED))
    return max(waiting.values(), default=0) >= _SEVERAL


def _emptied(trace: Trace) -> bool:
    """A request was removed while it decoded alone."""
    return any(
        set(before.in_stage(Stage.DECODE)) == set(step.removed_from)
        and not before.in_stage(Stage.PREFILL)
        and not before.in_stage(Stage.QUEUED)
        for before, step in pairwise(trace.steps)
        if step.removed_from
    )


TRAFFIC = Scenario(
    "traffic",
    210,
    "a busy server: joins, waits, removals and ends of every kind, in one schedule",
    frozenset(),
    _traffic,
    (
        seen.rows_together(12).shown_in("many"),
        replace(seen.late_join(), needs=frozenset({Capability.LATE_JOIN})),
        Witness("a request that waits for several steps", _waits, needs=_QUEUES).shown_in(
            "few_slots"
        ),
        replace(seen.removed_from(Stage.DECODE, among=5), needs=_LEAVES).shown_in("many"),
        Witness("a removal that leaves no request", _emptied, needs=_LEAVES).shown_in("few_slots"),
    ),
)
