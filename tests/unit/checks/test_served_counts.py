"""Counts of a server's own steps, on traces written by hand."""

import pytest

from conformance.checks.contract_counts import costs
from conformance.checks.play import Play
from conformance.core.engine_options import EngineOptions
from conformance.core.forward_calls import ForwardCall, ServedStep
from conformance.core.schedule import Arrival, Removal, Request, Schedule, Stage, Trigger
from conformance.core.trace import Mode, Step, StepOutput, TokenEvent, Trace

OPTIONS = EngineOptions(busy=True, counted=True)
LATE = Request("late", tuple(range(1, 10)), 2)


def step(*calls, left=False):
    return ServedStep(tuple(ForwardCall(*call) for call in calls), 1000, left=left)


def counts(schedule, served, *, events=(), removed=None, left_over=None):
    output = StepOutput(tuple(events), served=tuple(served), left_over=left_over)
    steps = (
        Step(0, {}, StepOutput()),
        Step(1, {}, output, removed_from=removed or {}),
    )
    trace = Trace(schedule, Mode.FREE, steps)
    found = costs(
        Play(schedule, (trace,), {}, dict.get, dict.get, dict.get, engine="mlx_vlm_server")
    )
    return {cost.contract: cost.count for cost in found}


def late(served):
    schedule = Schedule(
        "late",
        (Arrival((LATE,)),),
        options=OPTIONS,
        contracts=("first_token", "others_wait", "others_calls"),
    )
    return counts(schedule, served, events=(TokenEvent("late", 1),))


DECODE = (1, 1)
PIECE, LAST, BOTH = step(DECODE, (1, 4)), step(DECODE, (1, 1)), step((2, 1))
RIGHT = (step(DECODE), PIECE, PIECE, LAST, BOTH, BOTH)


def test_a_late_prompt_is_counted_from_its_first_piece_to_its_first_token():
    assert late(RIGHT) == {"first_token": 4, "others_wait": 0, "others_calls": 1}


def test_a_row_that_waits_and_pieces_at_once_are_seen():
    waits = (step(DECODE), step(DECODE, (1, 4)), step((1, 4)), step((1, 4)), step((2, 1)))
    assert late(waits)["others_wait"] == 2
    at_once = (step(DECODE), step(DECODE, (1, 4), (1, 4), (1, 1)), step((2, 1)))
    assert late(at_once) == {"first_token": 2, "others_wait": 0, "others_calls": 3}


def test_pieces_of_prompts_are_counted_if_some_were_taken_together():
    short = Request("short", (1, 2, 3), 2)
    schedule = Schedule("two", (Arrival((short, LATE)),), options=OPTIONS, contracts=("positions",))
    together = (step(DECODE, (2, 4)), step(DECODE, (1, 4)), step(DECODE, (1, 1)), step((3, 1)))
    assert counts(schedule, together) == {"positions": 1.2}
    alone = (step(DECODE, (1, 2)), step((2, 1), (1, 8)))
    assert counts(schedule, alone) == {}


@pytest.mark.parametrize(("many", "share"), [(1, 0.01), (97, 0.97)])
def test_tokens_for_a_client_that_left_are_a_share_of_those_still_to_come(many, share):
    leaver, after = Request("leaver", (1, 2), 103), Request("next", (1, 2, 3), 2)
    schedule = Schedule(
        "left",
        (Arrival((leaver,)), Arrival((after,), Trigger())),
        (Removal(("leaver",), Trigger()),),
        options=OPTIONS,
        contracts=("left",),
    )
    before = [step((2, 1))] * 5  # for somebody
    gone = [step((2, 1), left=True)] * many
    then = [step((1, 1), left=True), step((1, 1), (1, 2), left=True), step((2, 1), left=True)]
    events = [TokenEvent("leaver", 1)] * 3
    removed = {"leaver": Stage.DECODE}
    found = counts(schedule, [*before, *gone, *then], events=events, removed=removed)
    assert found == {"left": share}


def test_bytes_at_rest_are_those_that_the_server_noted():
    schedule = Schedule("end", (Arrival((LATE,)),), contracts=("at_rest",))
    assert counts(schedule, [step((1, 1))], left_over=262852) == {"at_rest": 262852}
