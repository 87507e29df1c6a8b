"""Rows that draw at random: each by its own probabilities, independently of the others."""

from __future__ import annotations

import itertools
from dataclasses import replace as replace_witness

from msgspec.structs import replace

from conformance.core.engine import Capability
from conformance.core.engine_options import EngineOptions
from conformance.core.schedule import Request, Schedule
from conformance.core.token_choice import RANDOM, Sampler
from conformance.core.trace import Trace
from conformance.scenarios import witnesses as seen
from conformance.scenarios.build import (
    LASTING,
    SHORT,
    at_once,
    gone,
    produced,
    text_request,
    together,
)
from conformance.scenarios.scenario import Brief, Scenario, Witness

_ROWS = 64
# So many rows draw so many tokens: the random numbers of a step must not come again.
_LONG, _LONGER = 8, 48
_GROUP = 8  # rows that begin in an idle engine
_SAMPLER = Sampler(RANDOM, {"temp": 1.0})
# What a filter leaves differs by row; a sampler that rows share must not mix them up.
_FILTERED = Sampler(RANDOM, {"temp": 2.0, "top_p": 0.9, "min_p": 0.2, "top_k": 6})
# Flatter, so that equal random numbers show in rows with other histories.
_WARM = Sampler(RANDOM, {"temp": 2.0})
_PLAIN = EngineOptions(prefill_batch_size=_ROWS, completion_batch_size=_ROWS)


def _distributions(brief: Brief) -> list[Schedule]:
    """One sampler for all rows, without filters and with; one for each row.

    And rows that join late, or come when all others have ended.
    """
    plain, warm = _rows(brief, _SAMPLER), _rows(brief, _WARM)
    default = replace(_PLAIN, sampler=_SAMPLER)
    schedules = [
        at_once("shared", *plain, options=default),
        at_once("filtered", *_rows(brief, _FILTERED), options=replace(_PLAIN, sampler=_FILTERED)),
    ]
    if Capability.SAMPLERS in brief.capabilities:
        schedules.append(at_once("own", *plain, options=_PLAIN))
    if Capability.LATE_JOIN in brief.capabilities:
        mixed = [warm[n] if n % 2 else plain[n] for n in range(_ROWS)]
        rows = mixed if Capability.SAMPLERS in brief.capabilities else plain
        longer = min(_LONGER, (brief.longest or _LONGER + SHORT) - SHORT)
        rows = [replace(row, max_tokens=longer) for row in rows[:_LONG]] + rows[_LONG:]
        half = _ROWS // 2
        arrivals = (together(*rows[:half]), together(*rows[half:], when=produced("r0", 2)))
        # mlx-vlm waits for as many free rows as are prefilled at once.
        options = replace(default, prefill_batch_size=half)
        schedules.append(Schedule("late", arrivals, options=options))
        schedules.append(_again(plain))
    return schedules


def _again(rows: list[Request]) -> Schedule:
    """Groups of equal rows, each in an idle engine: as if it began anew, but for its numbers."""
    groups = [rows[at : at + _GROUP] for at in range(0, _ROWS, _GROUP)]
    arrivals = [together(*groups[0])]
    for before, group in itertools.pairwise(groups):
        arrivals.append(together(*group, when=gone(before[-1].request_id)))
    options = EngineOptions(
        sampler=_SAMPLER, prefill_batch_size=_GROUP, completion_batch_size=_GROUP
    )
    return Schedule("again", tuple(arrivals), options=options)


def _rows(brief: Brief, sampler: Sampler) -> list[Request]:
    return [
        text_request(brief, f"r{n}", SHORT, max_tokens=LASTING, sampler=sampler)
        for n in range(_ROWS)
    ]


def _differ(trace: Trace) -> bool:
    """Whether equal rows began with different tokens."""
    streams = (trace.stream(request.request_id) for request in trace.schedule.requests)
    return len({stream.tokens[0] for stream in streams if stream.tokens}) > 1


DISTRIBUTIONS = Scenario(
    "distributions",
    142,
    "tokens drawn at random: by the oracle's probabilities, rows and steps independent",
    frozenset({Capability.DEFAULTS}),
    _distributions,
    (
        seen.rows_together(_GROUP),
        seen.rows_together(_ROWS).shown_in("shared"),
        replace_witness(
            seen.late_join(), needs=frozenset({Capability.LATE_JOIN}), rows=_ROWS
        ).shown_in("late"),
        Witness("equal rows that draw different tokens", _differ),
    ),
)
