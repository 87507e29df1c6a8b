"""The workload ``traffic_leaves``: what requests leave behind that came and went."""

from __future__ import annotations

from collections.abc import Callable

from conformance.core.engine import Capability
from conformance.core.engine_options import EngineOptions
from conformance.core.schedule import CYCLES, Arrival, Removal, Schedule, Trigger, Weigh
from conformance.core.trace import Trace
from conformance.scenarios.build import (
    LASTING,
    LONG,
    MEDIUM,
    ONE,
    PIECE,
    SHORT,
    TWO,
    gone,
    produced,
    requests_of,
    together,
)
from conformance.scenarios.scenario import Brief, Scenario, Witness

# One prompt at a time in prefill, and never more than three rows.
_FEW_SLOTS = EngineOptions(prefill_step_size=PIECE, prefill_batch_size=1, completion_batch_size=3)


def _leaves(brief: Brief) -> list[Schedule]:
    return [_renewed(brief), _again(brief)]


def _renewed(brief: Brief) -> Schedule:
    """Requests end, or are removed from the queue, in prefill and in decode; by many engines."""
    arrivals, removals = _cycle(brief, 0)
    return Schedule("renewed", arrivals, removals, options=_FEW_SLOTS, weigh=Weigh.CYCLES)


def _again(brief: Brief) -> Schedule:
    """The same many times by one engine, which is idle in between."""
    cycles = [_cycle(brief, number) for number in range(CYCLES)]
    arrivals = tuple(arrival for each, _ in cycles for arrival in each)
    removals = tuple(removal for _, each in cycles for removal in each)
    return Schedule("again", arrivals, removals, options=_FEW_SLOTS, weigh=Weigh.IDLE)


def _cycle(brief: Brief, number: int) -> tuple[tuple[Arrival, ...], tuple[Removal, ...]]:
    """Arrivals, when the cycle before has ended, and removals. One request decodes to its end."""
    lengths = {"ends": MEDIUM, "decodes": SHORT, "prefills": LONG, "waits": TWO, "goes": ONE}
    rows = requests_of(brief, {f"{name}{number}": n for name, n in lengths.items()}, 2 * LASTING)
    ends, decodes, prefills, waits, goes = (row.request_id for row in rows)

    def at(count: int) -> Trigger:
        return produced(ends, count)

    before = gone(f"ends{number - 1}") if number else None
    arrivals = together(rows[0], when=before), together(*rows[1:2], when=at(1))
    leaving = Removal((goes,), at(6)), Removal((prefills, waits), at(7)), Removal((decodes,), at(9))
    return (*arrivals, together(*rows[2:], when=at(6))), leaving


def _counted_after(weigh: Weigh) -> Callable[[Trace], bool]:
    return lambda trace: trace.schedule.weigh is weigh and len(trace.left) >= CYCLES


TRAFFIC_LEAVES = Scenario(
    "traffic_leaves",
    215,
    "what requests leave behind that ended or were removed, thirty times",
    frozenset({Capability.CANCEL, Capability.LATE_JOIN, Capability.SLOTS, Capability.STAGES}),
    _leaves,
    (
        Witness("what each of many engines left", _counted_after(Weigh.CYCLES)).shown_in("renewed"),
        Witness("what one engine left each time", _counted_after(Weigh.IDLE)).shown_in("again"),
    ),
)
