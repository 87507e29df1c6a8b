"""The workload ``traffic_drafts``: traffic with a drafter, whose own drafts are compared.

A draft that must be rejected has the oracle's second best token, so that a lax acceptance takes it.
While a batch drafts, engines admit no request: rows come in waves, and leave between rounds.
Prompts of equal length need no padding: drafters that cannot read padding are compared, too.
"""

from __future__ import annotations

import itertools

from conformance.core.engine import Capability
from conformance.core.engine_options import Drafting, EngineOptions
from conformance.core.family import Family
from conformance.core.schedule import Removal, Request, Schedule, Stage
from conformance.core.token_choice import RANDOM, Sampler
from conformance.core.trace import Trace
from conformance.scenarios import witnesses as seen
from conformance.scenarios.build import (
    PIECE,
    SHORT,
    at_once,
    gone,
    produced,
    text_request,
    together,
)
from conformance.scenarios.choices import Seeded
from conformance.scenarios.scenario import Brief, Scenario, Witness
from conformance.scenarios.speculative import accepted_all, accepted_some, rejected
from conformance.scenarios.workloads.mixing import cycled

_BLOCK = 4
# How many tokens of the drafts are right. Some drafters need all rows to accept equally many: the
# fewest. Hence few zeros: each is followed by rounds in which five rows accept one or more.
_RIGHT = (3, 2, 3, 3, 1, 3, 2, 3, 0, 3, 1, 2, 2)
# Rows of the first wave and of the second, and of those who wait one that leaves the queue.
_FIRST, _SECOND = 6, 5
_LONGEST = 29
_LIMITS = (5, 15)
_LASTING = 24
# The likeliest tokens are often drawn, and draws at other temperatures are unlike these.
_DRAWN, _RANDOM = 32, Sampler(RANDOM, {"temp": 0.5})


def _traffic_drafts(brief: Brief) -> list[Schedule]:
    # A family with media plays one kind: its rows cost most, and others have the same kinds.
    kinds = brief.drafters if set(brief.modalities) == {"text"} else brief.drafters[-1:]
    drawn = [_drawn(brief, kind) for kind in kinds]
    return drawn + [
        _waves(brief, f"{kind}_{name}", number, _options(kind, piece), lengths)
        for kind in brief.drafters
        for number, (name, piece, lengths) in enumerate(
            (("unlike", PIECE, range(2, _LONGEST + 1)), ("equal", _LONGEST, range(13, 14)))
        )
    ]


def _drawn(brief: Brief, kind: str) -> Schedule:
    """Equal rows that draw at random: a draft is accepted as often as the row would draw it."""
    options = EngineOptions(
        prefill_batch_size=_DRAWN,
        completion_batch_size=_DRAWN,
        drafting=Drafting(kind, _BLOCK, likely=True),
        sampler=_RANDOM,
    )
    rows = [
        text_request(brief, f"r{n}", SHORT, max_tokens=_LASTING, sampler=_RANDOM)
        for n in range(_DRAWN)
    ]
    return at_once(f"{kind}_drawn", *rows, options=options)


def _options(kind: str, piece: int) -> EngineOptions:
    return EngineOptions(
        prefill_step_size=piece,
        prefill_batch_size=_FIRST,
        completion_batch_size=_FIRST,
        drafting=Drafting(kind, _BLOCK, _RIGHT, compared=True),
    )


def _waves(
    brief: Brief, name: str, number: int, options: EngineOptions, lengths: range
) -> Schedule:
    """A wave of rows that decode, one that waits for its end, and a row that waits for both.

    In each wave rows end, and leave after one round and after several: the first, a middle and the
    last one. All prompts and limits differ.

    Args:
        lengths: tokens of the prompts, each once before any comes again.
    """
    choices = Seeded(brief.seed, 11, number)
    first, second, last = _rows(brief, choices, lengths)
    lasting, other = first[2].request_id, second[1].request_id
    removals = (
        Removal((first[0].request_id,), produced(lasting, 3)),
        Removal((first[4].request_id, second[2].request_id), produced(lasting, 8)),
        Removal((second[0].request_id,), produced(other, 2)),
        Removal((second[-1].request_id,), produced(other, 6)),
    )
    arrivals = (
        together(*first),
        together(*second, when=produced(lasting, 4)),
        together(last, when=gone(lasting)),
    )
    return Schedule(name, arrivals, removals, options=options)


def _rows(
    brief: Brief, choices: Seeded, lengths: range
) -> tuple[list[Request], list[Request], Request]:
    """The rows of two waves, and one. The third of the first wave, the second of the second last.

    Rows that are removed do not end before.
    """
    count = _FIRST + _SECOND + 1
    most = lengths[-1]
    if brief.longest is not None:
        most = max(3, min(most, brief.longest - _LASTING - 2 * _BLOCK))
    prompts = cycled(choices, range(min(lengths[0], most), most + 1), count)
    limits = cycled(choices, range(*_LIMITS), count)
    if len(lengths) > 1:
        prompts[3] = 1
    for place in (0, 4, _FIRST, _FIRST + _SECOND - 1):
        limits[place] = _LASTING - 1
    limits[2], limits[_FIRST + 1] = _LASTING, _LASTING + 1
    rows = [
        text_request(brief, f"r{i}", length, variant=i, max_tokens=limits[i])
        for i, length in enumerate(prompts)
    ]
    return rows[:_FIRST], rows[_FIRST:-1], rows[-1]


def _goes_on(trace: Trace) -> bool:
    """A row drafts in a smaller batch than before, and its own drafts are known."""
    batches = [set(step.output.proposed) for step in trace.steps if step.output.proposed]
    return any(some > later for some, later in itertools.pairwise(batches) if later)


def _differ(trace: Trace) -> bool:
    """Rows of one step have drafts of their own: the drafter reads more than what all have."""
    most = max((len(set(s.output.proposed.values())) for s in trace.steps), default=0)
    return most >= _FIRST // 2


def _has_drafter(family: Family) -> str:
    return "" if family.facts.drafters else "it has no drafter"


TRAFFIC_DRAFTS = Scenario(
    "traffic_drafts",
    216,
    "a busy server with a drafter, whose own drafts are compared with those for each row alone",
    frozenset(
        {
            Capability.SPECULATIVE,
            Capability.LATE_JOIN,
            Capability.SLOTS,
            Capability.CANCEL,
            Capability.STAGES,
            Capability.CHUNKED,
        }
    ),
    _traffic_drafts,
    (
        accepted_all().shown_in("*_equal", "*_unlike"),
        accepted_some().shown_in("*_equal", "*_unlike"),
        rejected().shown_in("*_equal", "*_unlike"),
        seen.removed_from(Stage.DECODE, among=4).shown_in("*_equal", "*_unlike"),
        Witness("own drafts of rows that others left", _goes_on).shown_in("*_equal", "*_unlike"),
        Witness("own drafts that differ by row", _differ).shown_in("*_equal", "*_unlike"),
    ),
    applies=_has_drafter,
)
