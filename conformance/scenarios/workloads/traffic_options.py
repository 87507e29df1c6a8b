"""The workload ``traffic_options``: traffic in which each row chooses its tokens in its own way."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace as replace_witness

from msgspec.structs import replace

from conformance.core.engine import Capability
from conformance.core.engine_options import EngineOptions
from conformance.core.representatives import representatives
from conformance.core.schedule import Budget, Removal, Request, Schedule
from conformance.core.token_choice import Processor, Sampler
from conformance.core.trace import Trace
from conformance.scenarios import witnesses as seen
from conformance.scenarios.build import (
    IN_PIECES,
    LONG,
    PIECE,
    at_once,
    in_prefill,
    text_request,
    together,
)
from conformance.scenarios.choices import Choices, Seeded
from conformance.scenarios.engine_sampling import BEST, SECOND, UNLIKELY, bias, penalties
from conformance.scenarios.scenario import Brief, Scenario, Witness
from conformance.scenarios.workloads.mixing import Dress, Scale, draw_rows, stopping, traffic

# Prompts are longer than the history that a penalty counts by default, and than 64 tokens.
_SCALE = Scale(
    first=14, second=6, groups=(2, 4), longest=97, limits=(5, 15), lasting=24, emptied=True
)
_BUDGETED = Scale(first=8, second=4, groups=(2, 3), longest=20, limits=(6, 15), lasting=30)
# The first row, which decodes for long, has so many processors; each favours one token.
_MANY, _PROCESSORS = 1, 35
# Tokens of a long row's prompt and output, more than 1,024 from its first output token on.
_HISTORY = (1103, 5)
# Rows that decode at once, with options of their own: some lists have eight places at first, and
# some tables have 64. The first rows decode until the last requests have joined.
_CROWD, _FULL, _MORE = 12, 64, 4
# The first rows, which have no budgets, and how many rows with one reach its end, at least.
_UNBUDGETED, _ENDED = 4, 3


def _traffic_options(brief: Brief) -> list[Schedule]:
    plain = EngineOptions(prefill_batch_size=4, completion_batch_size=7)
    schedules = [_mixed(brief, "own", 3, plain)]
    if Capability.DEFAULTS in brief.capabilities:
        given = replace(plain, sampler=SECOND, processors=(bias(brief, 0),))
        schedules.append(_mixed(brief, "own_and_default", 4, given))
    if Capability.BUDGETS in brief.capabilities:
        schedules += [_budgeted(brief), _ended_together(brief)]
    return [*schedules, _crowd(brief), _close(brief), *_history(brief)]


def _crowd(brief: Brief) -> Schedule:
    """Rows with options of their own: twelve at once; others of the 65th request than the first's.

    Engines of other models decode by turns with theirs. The first two go on while others join.
    Families that play no costly schedules skip the plain requests between, whose prompts come
    again and again.
    """
    samples = Capability.SAMPLERS in brief.capabilities
    costly = brief.family in representatives().costly.get(brief.library, (brief.family,))
    plain = range(_CROWD, _FULL) if costly else ()
    rows = [
        text_request(brief, f"r{n}", 2 + n, variant=n, max_tokens=4 + n % 3 + 16 * (n < 2))
        for n in range(_CROWD)
    ]
    rows += [text_request(brief, f"r{n}", 2 + n % 3, variant=n % 3, max_tokens=1) for n in plain]
    rows += [
        text_request(brief, f"r{n}", n - _FULL + 3, variant=n, max_tokens=4)
        for n in range(_FULL, _FULL + _MORE)
    ]
    for at, row in enumerate(rows):
        n = int(row.request_id[1:])
        if n in plain:
            continue
        sampler = Sampler("rank", {"rank": 1 + n % 2}) if samples and n % 3 else None
        rows[at] = replace(row, processors=penalties(brief, n)[n % 4], sampler=sampler)
    options = EngineOptions(prefill_batch_size=_CROWD // 2, completion_batch_size=_CROWD)
    made = at_once("crowd", *rows, options=options)
    return replace(made, beside_models=not brief.required)


def _close(brief: Brief) -> Schedule:
    """Greedy rows, each of which has two tokens that are almost equally likely."""
    rows = [
        text_request(brief, f"r{n}", n, max_tokens=5, processors=(Processor("close"),))
        for n in (2, 5, 9)
    ]
    return at_once("close", *rows)


def _history(brief: Brief) -> Iterator[Schedule]:
    """Penalties count all tokens of a row with more than 1,024, beside a short one."""
    long = representatives().counted_long.get(brief.library, (brief.family,))
    if brief.family not in long or (brief.longest or sum(_HISTORY)) < sum(_HISTORY):
        return
    counts = {"frequency_penalty": 0.4, "frequency_context_size": 2 * _HISTORY[0]}
    counted = (Processor("library", {"repetition_penalty": 1.4, **counts}),)
    length, limit = _HISTORY
    row = text_request(brief, "long", length, max_tokens=limit, processors=counted)
    short = text_request(brief, "short", 7, variant=1, max_tokens=limit + 2, processors=counted)
    yield at_once("history", row, short)


def _mixed(brief: Brief, name: str, number: int, options: EngineOptions) -> Schedule:
    choices = Seeded(brief.seed, number)
    dresses = [_choosing(brief, choices, options)]
    if Capability.STOP in brief.capabilities:
        dresses.append(stopping(brief, choices, options))
    rows = draw_rows(brief, choices, _SCALE)
    return traffic(brief, choices, _SCALE, rows, *dresses, name=name, options=options)


def _budgeted(brief: Brief) -> Schedule:
    choices = Seeded(brief.seed, 5)
    options = EngineOptions(completion_batch_size=5, prefill_batch_size=_UNBUDGETED)
    rows = draw_rows(brief, choices, _BUDGETED)
    dresses = (_choosing(brief, choices, options), _thinking(brief, choices, options))
    return traffic(brief, choices, _BUDGETED, rows, *dresses, name="budgets", options=options)


def _thinking(brief: Brief, choices: Choices, options: EngineOptions) -> Dress:
    """Gives three of four rows a thinking budget, which ends with tokens that they never choose.

    The rows that are prefilled first have none, which others join; a row's history, which its
    penalties count, has the forced tokens. Two of three begin to think within their answers.
    """
    number = 0

    def dress(request: Request, lasts: bool) -> Request:  # noqa: ARG001, FBT001 - see Dress
        nonlocal number
        number += 1
        if number <= _UNBUDGETED or number % 4 == 3 or request.max_tokens < 3:
            return request
        chosen = brief.solo(request, options).tokens
        forced = [choices.pick(_others(brief, chosen)) for _ in range(1 + number % 2)]
        opened, begins = None, 0
        if number % 3:
            early = chosen[: request.max_tokens - 3]
            opened = max(early, key=early.index)  # as late as it can: others leave before
            begins = 1 + early.index(opened)
        after = choices.integer(0, request.max_tokens - 3 - begins)
        return replace(request, budget=Budget(after, tuple(forced), opened, bool(begins)))

    return dress


def _forced(trace: Trace) -> bool:
    return len(list(_ended(trace))) >= _ENDED


def _ended_together(brief: Brief) -> Schedule:
    """Thinking is ended in steps in which other rows end; of one row twice, as it begins again.

    The first row, with a budget and a penalty of its own, leaves while all are in prefill.
    """
    options = IN_PIECES
    ends = [
        text_request(brief, f"ends_{limit}", LONG, variant=limit, max_tokens=limit)
        for limit in (2, 3, 4)
    ]
    leaves, one, two, again = (
        text_request(brief, name, LONG + n, variant=5 + n, max_tokens=7 + 2 * n)
        for n, name in enumerate(("leaves", "one", "two", "again"))
    )
    thinking = (one, two, again)
    first, last, *_ = _others(brief, *(brief.solo(row, options).tokens for row in thinking))
    leaves = replace(leaves, budget=Budget(4, (first,)), processors=penalties(brief, 1)[0])
    one = replace(one, budget=Budget(2, (last,)), processors=penalties(brief, 2)[1])
    two = replace(two, budget=Budget(1, (first, last)), processors=penalties(brief, 3)[0])
    again = replace(again, budget=Budget(3, (last,)))
    tokens = brief.solo(again, options).tokens
    closed = tokens.index(last) + 1 if last in tokens else 0
    opened = next((t for t in tokens[closed:-3] if t not in tokens[:closed]), None)
    again = replace(again, budget=Budget(3, (last,), opened))
    leave = (Removal(("leaves",), in_prefill("leaves", PIECE)),)
    arrivals = (together(leaves, *ends, one, two, again),)
    return Schedule("ended_together", arrivals, leave, options=options)


def _others(brief: Brief, *chosen: Sequence[int]) -> list[int]:
    """The tokens that none of these streams has."""
    low, high = brief.tokens
    return [token for token in range(low, high) if not any(token in tokens for tokens in chosen)]


def _forced_later(trace: Trace) -> bool:
    return any(budget.later for budget in _ended(trace))


def _forced_twice(trace: Trace) -> bool:
    return any(
        trace.stream(request.request_id).tokens.count(request.budget.forced[-1]) > 1
        for request in trace.schedule.requests
        if request.budget is not None
    )


def _ended(trace: Trace) -> Iterator[Budget]:
    """The budgets whose rows have the token that ends their thinking, and go on."""
    for request in trace.schedule.requests:
        tokens = trace.stream(request.request_id).tokens[:-1]
        if request.budget is not None and request.budget.forced[-1] in tokens:
            yield request.budget


def _choosing(brief: Brief, choices: Choices, options: EngineOptions) -> Dress:
    """Gives each row processors and a sampler of its own, those of the engine, or none.

    A third of the rows have no processors of their own, a third no sampler. Seeds, biases and
    penalties differ by row.
    """
    samples = Capability.SAMPLERS in brief.capabilities
    number = 0

    def dress(request: Request, lasts: bool) -> Request:  # noqa: ARG001, FBT001 - see Dress
        nonlocal number
        number += 1
        processors, sampler = options.processors, options.sampler
        if choices.integer(0, 2):
            processors = choices.pick(penalties(brief, number))
        if number == _MANY:
            processors = tuple(_favouring(brief, token) for token in range(_PROCESSORS))
        if samples and choices.integer(0, 2):
            seeded = Sampler("seeded", {"temperature": 0.8, "seed": number})
            ranked = Sampler("rank", {"rank": 1 + number % 3})
            sampler = choices.pick((seeded, ranked, BEST, UNLIKELY))
        return replace(request, processors=processors, sampler=sampler)

    return dress


def _favouring(brief: Brief, number: int) -> Processor:
    low, high = brief.tokens
    return Processor("library", {"logit_bias": {str(low + 5 * number % (high - low)): 3.0}})


def _differ(trace: Trace) -> bool:
    processors = {repr(request.processors) for request in trace.schedule.requests}
    return len(processors) >= 4


TRAFFIC_OPTIONS = Scenario(
    "traffic_options",
    211,
    "a busy server whose rows have samplers, processors and stop sequences of their own",
    frozenset({Capability.PROCESSORS}),
    _traffic_options,
    (
        seen.rows_together(4).shown_in("own*", "budgets", "ended_together"),
        seen.rows_together(9).shown_in("crowd"),
        replace_witness(seen.late_join(), needs=frozenset({Capability.LATE_JOIN})).shown_in(
            "own*", "budgets"
        ),
        Witness("rows with processors of four kinds", _differ).shown_in("own*"),
        Witness(
            "rows whose thinking is ended for them",
            _forced,
            needs=frozenset({Capability.BUDGETS}),
        ).shown_in("budgets"),
        Witness(
            "thinking that begins within an answer and is ended",
            _forced_later,
            needs=frozenset({Capability.BUDGETS}),
        ).shown_in("budgets"),
        Witness(
            "thinking that begins again and is ended again",
            _forced_twice,
            needs=frozenset({Capability.BUDGETS}),
        ).shown_in("ended_together"),
    ),
)
