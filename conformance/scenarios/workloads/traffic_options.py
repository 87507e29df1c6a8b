"""The workload ``traffic_options``: traffic in which each row chooses its tokens in its own way."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace as replace_witness

from msgspec.structs import replace

from conformance.core.engine import Capability
from conformance.core.engine_options import EngineOptions
from conformance.core.schedule import Budget, Request, Schedule
from conformance.core.token_choice import Processor, Sampler
from conformance.core.trace import Trace
from conformance.scenarios import witnesses as seen
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
# Rows with a budget that reach its end, at least.
_ENDED = 4


def _traffic_options(brief: Brief) -> list[Schedule]:
    plain = EngineOptions(prefill_batch_size=4, completion_batch_size=7)
    schedules = [_mixed(brief, "own", 3, plain)]
    if Capability.DEFAULTS in brief.capabilities:
        given = replace(plain, sampler=SECOND, processors=(bias(brief, 0),))
        schedules.append(_mixed(brief, "own_and_default", 4, given))
    if Capability.BUDGETS in brief.capabilities:
        schedules.append(
            _budgeted(brief, EngineOptions(prefill_batch_size=4, completion_batch_size=5))
        )
    return schedules


def _mixed(brief: Brief, name: str, number: int, options: EngineOptions) -> Schedule:
    choices = Seeded(brief.seed, number)
    dresses = [_choosing(brief, choices, options)]
    if Capability.STOP in brief.capabilities:
        dresses.append(stopping(brief, choices, options))
    rows = draw_rows(brief, choices, _SCALE)
    return traffic(brief, choices, _SCALE, rows, *dresses, name=name, options=options)


def _budgeted(brief: Brief, options: EngineOptions) -> Schedule:
    choices = Seeded(brief.seed, 5)
    rows = draw_rows(brief, choices, _BUDGETED)
    dresses = (_choosing(brief, choices, options), _thinking(brief, choices, options))
    return traffic(brief, choices, _BUDGETED, rows, *dresses, name="budgets", options=options)


def _thinking(brief: Brief, choices: Choices, options: EngineOptions) -> Dress:
    """Gives three of four rows a thinking budget, which ends with tokens that they never choose.

    The row that joins first has none; a row's history, which its penalties count, has the forced
    tokens. A third of the rows begin to think within their answers, at a token that may come again.
    """
    low, high = brief.tokens
    number = 0

    def dress(request: Request, lasts: bool) -> Request:  # noqa: ARG001, FBT001 - see Dress
        nonlocal number
        number += 1
        if number % 4 == 3 or request.max_tokens < 3:
            return request
        chosen = brief.solo(request, options).tokens
        never = [token for token in range(low, high) if token not in chosen]
        forced = [choices.pick(never) for _ in range(1 + number % 2)]
        opened, begins = None, 0
        if number % 3 == 2:
            early = chosen[: request.max_tokens - 3]
            opened = max(early, key=early.index)  # as late as it can: others leave before
            begins = 1 + early.index(opened)
        after = choices.integer(0, request.max_tokens - 3 - begins)
        return replace(request, budget=Budget(after, tuple(forced), opened))

    return dress


def _forced(trace: Trace) -> bool:
    return len(list(_ended(trace))) >= _ENDED


def _forced_later(trace: Trace) -> bool:
    return any(budget.opened_by is not None for budget in _ended(trace))


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
        seen.rows_together(4),
        replace_witness(seen.late_join(), needs=frozenset({Capability.LATE_JOIN})),
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
    ),
)
