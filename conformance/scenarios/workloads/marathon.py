"""The workload ``marathon``: one generator that decodes for long, many requests, and many at once.

What an engine counts, cuts now and then, or keeps by a request's number, may be right for the first
requests and tokens only.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace as replace_witness
from itertools import accumulate, islice, pairwise

from msgspec.structs import replace

from conformance.core.engine import Capability
from conformance.core.engine_options import EngineOptions
from conformance.core.schedule import Removal, Request, Schedule, Stage, Trigger
from conformance.core.token_choice import Processor, Sampler
from conformance.core.trace import Trace
from conformance.scenarios import witnesses as seen
from conformance.scenarios.build import gone, produced, text_request, together
from conformance.scenarios.choices import Choices, Seeded
from conformance.scenarios.engine_sampling import BEST, SECOND, bias, penalties
from conformance.scenarios.scenario import Brief, Scenario, Witness
from conformance.scenarios.workloads.mixing import cycled, near_twin, stopping

# A model with so many positions gets prompts and outputs of their full length.
_ENOUGH = 4096

# Tokens of the prompt, and of the output, of rows that decode when others join them after so many
# steps; these have more keys than 1,024, and than 2,048, from where on float16 has no odd numbers.
_EARLY, _AFTER = ((211, 31), (3, 29)), 9
# The longest is prefilled in more than 32 pieces.
_LATE, _PIECES = ((1680, 31), (2100, 19), (29, 53)), EngineOptions(prefill_step_size=60)

# One row decodes for more than 512 steps. Meanwhile groups of others arrive, more than there are
# slots, and at last a row of about its own length; the last group when all others have ended.
# The least that these and their groups need, of a model with few positions, comes third.
_RUNNER, _RIVAL = (67, 541, 79), (521, 87, 13)
_GROUPS, _LAST = (9, 1, 26, 3, 12, 2, 5, 9, 1, 17, 3, 7, 8, 12), 9
_OPTIONS = EngineOptions(completion_batch_size=26, prefill_batch_size=11)
# Before them come so many of one token: more than 512 wait, and what is kept by a request's number
# is past that. One call inserts them; every third, fifth and seventh differs from the others.
_TINY = 530
# Takes the likeliest token, which each filter leaves alone, if it looks at the row's own logprobs.
_FILTERED = replace(BEST, args=BEST.args | {"min_p": 0.9})
_LENGTHS, _LIMITS = range(2, 49), range(2, 9)
_LASTING = (10, 11, 12, 13, 10, 11, 12, 13, 37)  # limits of rows in groups larger than a prefill
_LATEST = range(29, 35)  # the tokens that end rows with the largest limit
_JOIN = 9  # rows that join at once
_TWIN = 12  # the first of six requests whose prompts differ in one token, or in the order of all
_SAMPLED = 60  # the first of the requests that have samplers and processors of their own
# The first request of a wave of removals; after how many steps which of those from it on leave.
_WAVES, _LEAVING = (24, 73, 104), {0: (0, 1), 2: (3, 5), 5: (2, 6, 7)}
# Rows that decode at once, more than 256; every so many are alike. Some leave in one call.
_CROWD, _UNLIKE, _LEAVE = 269, 37, 71
_CROWDED = EngineOptions(prefill_batch_size=136, completion_batch_size=_CROWD + 3)
_LEAVES_AT, _JOINS_AT = 8, 9


def _marathon(brief: Brief) -> list[Schedule]:
    crowd = [_crowd(brief)] if Capability.TOGETHER in brief.capabilities else []
    return [_long(brief), _many(brief), *crowd]


def _fitting(brief: Brief) -> Callable[[int], int]:
    """Numbers of tokens, smaller in proportion for a model with few positions."""
    share = min(1, (brief.longest or _ENOUGH) / _ENOUGH)
    return lambda tokens: max(2, int(tokens * share))


def _long(brief: Brief) -> Schedule:
    """Two rows decode; two much longer ones and a short one join them, all three with penalties.

    These count all tokens of a row.
    """
    fitting = _fitting(brief)
    counts = {"frequency_penalty": 0.05, "frequency_context_size": _ENOUGH}
    penalty = (Processor("library", {"repetition_penalty": 1.4} | counts),)
    counted = {"processors": penalty} if Capability.PROCESSORS in brief.capabilities else {}
    early, late = (
        [
            text_request(brief, f"of_{n}", fitting(n), variant=n, max_tokens=limit, **more)
            for n, limit in rows
        ]
        for rows, more in ((_EARLY, {}), (_LATE, counted))
    )
    arrivals = (together(*early), together(*late, when=produced(early[0].request_id, _AFTER)))
    return Schedule("long", arrivals, options=_PIECES)


def _many(brief: Brief) -> Schedule:
    """After many tiny requests, groups come, and some are removed, while one row decodes."""
    choices, fitting = Seeded(brief.seed, 5), _fitting(brief)
    sampler = _FILTERED if Capability.DEFAULTS in brief.capabilities else None
    options = replace(_OPTIONS, sampler=sampler)
    tiny = [
        text_request(brief, f"t{n}", 1, variant=n % 16, max_tokens=1 + n % 3 // 2, sampler=sampler)
        for n in range(_TINY)
    ]
    if Capability.SAMPLERS in brief.capabilities:
        tiny[::5] = [replace(row, sampler=SECOND) for row in tiny[::5]]
    if Capability.PROCESSORS in brief.capabilities:
        tiny[3::7] = [replace(row, processors=(bias(brief, 1),)) for row in tiny[3::7]]
    runner, rival = (
        text_request(
            brief, name, fitting(length), max_tokens=max(least, fitting(limit)), sampler=sampler
        )
        for name, (length, limit, least) in (("runner", _RUNNER), ("rival", _RIVAL))
    )
    every = (runner.max_tokens - max(_LASTING)) // len(_GROUPS)
    moments = [2 + every * at for at in range(len(_GROUPS))]
    removals = _removals(moments) if Capability.CANCEL in brief.capabilities else {}
    removed = {name for names in removals.values() for name in names}
    given = iter(_rows(brief, choices, removed, options))

    def when(step: int) -> Trigger:
        return produced(runner.request_id, step)

    groups = [
        together(*islice(given, size), when=when(at))
        for size, at in zip(_GROUPS, moments, strict=True)
    ]
    more = min(5, rival.max_tokens // 4)  # of the rival's tokens come after the runner's end
    near = together(rival, when=when(runner.max_tokens - rival.max_tokens + more))
    last = together(*given, when=gone(rival.request_id))
    first = together(*tiny), together(runner, when=gone(tiny[-1].request_id))
    leave = tuple(Removal(names, when(at)) for at, names in removals.items())
    return Schedule("many", (*first, *groups, near, last), leave, options=options)


def _crowd(brief: Brief) -> Schedule:
    """As many rows as fit decode at once; then many leave, and as many join."""
    rows = [
        text_request(
            brief,
            f"r{n}",
            2 + 5 * (n % _UNLIKE) % 23,
            variant=n % _UNLIKE,
            max_tokens=11 + n % _UNLIKE % 7,
        )
        for n in range(_CROWD + _LEAVE)
    ]
    first, late = rows[:_CROWD], rows[_CROWD:]
    first[0] = replace(first[0], max_tokens=_LASTING[-1])
    arrivals = [together(*first), together(*late, when=produced("r0", _JOINS_AT))]
    leaving = tuple(row.request_id for row in first[5 : 5 + 3 * _LEAVE : 3])
    leave = (Removal(leaving, produced("r0", _LEAVES_AT)),)
    removals = leave if Capability.CANCEL in brief.capabilities else ()
    return Schedule("crowd", tuple(arrivals), removals, options=_CROWDED)


def _removals(moments: Sequence[int]) -> dict[int, tuple[str, ...]]:
    """Rows that leave together, by the first row's steps."""
    arrived = [at for at, size in zip(moments, _GROUPS, strict=True) for _ in range(size)]
    return {
        arrived[begin] + after: tuple(f"r{begin + n}" for n in which)
        for begin in _WAVES
        for after, which in _LEAVING.items()
    }


def _rows(
    brief: Brief, choices: Choices, removed: Collection[str], options: EngineOptions
) -> list[Request]:
    """The rows of all groups; those of large groups last a while. Nothing ends a removed one."""
    count = sum(_GROUPS) + _LAST
    lengths, limits = cycled(choices, _LENGTHS, count), cycled(choices, _LIMITS, count)
    for size, end in zip(_GROUPS, accumulate(_GROUPS), strict=True):
        if size > _OPTIONS.prefill_batch_size:
            limits[end - size : end] = cycled(choices, _LASTING, size)
    lengths[_TWIN] = _LENGTHS.stop // 2
    rows = [
        text_request(brief, f"r{i}", length, variant=i, max_tokens=limit, sampler=options.sampler)
        for i, (length, limit) in enumerate(zip(lengths, limits, strict=True))
    ]
    for number, place in enumerate((-1, 0, lengths[_TWIN] // 2, 2, None), start=_TWIN + 1):
        rows[number] = near_twin(brief, rows[_TWIN], rows[number], place)
    if Capability.SAMPLERS in brief.capabilities:
        rows[_SAMPLED:] = [_sampling(choices, row, i) for i, row in enumerate(rows[_SAMPLED:])]
    if Capability.PROCESSORS in brief.capabilities:
        rows[_SAMPLED:] = [
            replace(row, processors=choices.pick(penalties(brief, i % 16))) if i % 4 else row
            for i, row in enumerate(rows[_SAMPLED:])
        ]
    if Capability.STOP in brief.capabilities:
        stops = stopping(brief, choices, options)
        rows = [
            _stopped_late(brief, row, options)
            if row.max_tokens > _LATEST.stop and row.request_id not in removed
            else stops(row, row.request_id in removed)
            for row in rows
        ]
    return rows


def _stopped_late(brief: Brief, row: Request, options: EngineOptions) -> Request:
    """The row, ended by a sequence that is produced before and after 32 tokens."""
    tokens = brief.solo(row, options).tokens
    return replace(row, stop=(tokens[_LATEST.start : _LATEST.stop],))


def _sampling(choices: Choices, row: Request, number: int) -> Request:
    """The row with a sampler of its own; every third has none of its own."""
    seeded = Sampler("seeded", {"temperature": 0.8, "seed": number})
    sampler = choices.pick((row.sampler, seeded, Sampler("rank", {"rank": 2 + number % 2})))
    return replace(row, sampler=sampler)


def _joins(trace: Trace) -> bool:
    """Nine rows and more began to decode in one step, beside others."""
    decoding = [set(step.in_stage(Stage.DECODE)) for step in trace.steps]
    return any(now and len(later - now) >= _JOIN for now, later in pairwise(decoding))


def _lasts(trace: Trace) -> bool:
    """The rows with the largest limits were both at it when the longest had produced most."""
    long, other = sorted(trace.schedule.requests, key=lambda r: -r.max_tokens)[:2]
    steps = [
        s for s in trace.steps if {long.request_id, other.request_id} <= {*s.in_stage(Stage.DECODE)}
    ]
    return len(steps) > other.max_tokens // 2


def _long_beside(trace: Trace) -> bool:
    """The longest prompt's row decoded beside two that are unlike it."""
    longest = max(trace.schedule.requests, key=lambda r: len(r.prompt)).request_id
    return any(
        longest in rows and len(rows) > 2
        for rows in (step.in_stage(Stage.DECODE) for step in trace.steps)
    )


_CANCELS = frozenset({Capability.CANCEL, Capability.STAGES})
MARATHON = Scenario(
    "marathon",
    214,
    "one generator for long rows, many requests, and many rows at once",
    frozenset({Capability.LATE_JOIN, Capability.SLOTS}),
    _marathon,
    (
        Witness("a very long row beside two others", _long_beside, shared=True).shown_in("long"),
        seen.rows_together(20).shown_in("many"),
        seen.rows_together(257).shown_in("crowd"),
        Witness(
            f"{_JOIN} rows that join at once", _joins, seen.TOGETHER, shared=True, rows=_JOIN
        ).shown_in("many"),
        replace_witness(seen.removed_from(Stage.DECODE, among=_JOIN), needs=_CANCELS).shown_in(
            "many"
        ),
        Witness("two long rows for long", _lasts, shared=True).shown_in("many"),
    ),
)
