"""What servers are asked applies to servers only, and fits the positions that a family has."""

import pytest
from miniatures.right import ContinuousBatching

from conformance.core.engine import Capability
from conformance.core.family import Facts, Family
from conformance.core.schedule import Arrival, Request, Schedule, Stage
from conformance.core.trace import Mode, Step, StepOutput, Trace
from conformance.scenarios import LADDER
from conformance.scenarios.served import SERVED_SCENARIOS, in_flight

EVERYTHING = frozenset(Capability)


def test_servers_play_these_and_no_rung_of_the_ladder():
    for scenario in SERVED_SCENARIOS:
        assert scenario.served
        assert not scenario.lacking(EVERYTHING)
        assert "served" in scenario.lacking(ContinuousBatching.capabilities)
    for scenario in LADDER:
        assert "which a server does not show" in scenario.lacking(EVERYTHING)
        assert not scenario.lacking(EVERYTHING - {Capability.SERVED})


@pytest.mark.parametrize(
    ("config", "joins", "leaves"),
    [
        ({}, True, True),
        ({"n_positions": 2000}, True, False),
        ({"n_positions": 1024}, False, False),
    ],
)
def test_long_answers_need_positions(config, joins, leaves):
    family = Family("small", Facts(), {"vocab_size": 32, **config})
    reasons = {s.name: s.applies(family) for s in SERVED_SCENARIOS}
    assert (reasons["served_joins"] == "") is joins
    assert (reasons["served_leaves"] == "") is leaves


@pytest.mark.parametrize(
    ("stages", "seen"),
    [((Stage.DECODE, Stage.DECODE), True), ((Stage.DECODE, Stage.QUEUED), False)],
)
def test_answers_at_once_are_seen(stages, seen):
    schedule = Schedule("s", (Arrival((Request("a", (1,), 1), Request("b", (1,), 1))),))
    step = Step(0, dict(zip("ab", stages, strict=True)), StepOutput())
    assert in_flight(2).seen(Trace(schedule, Mode.FREE, (step,))) is seen
