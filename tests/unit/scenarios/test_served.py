"""What servers are asked applies to servers only, and fits the positions that a family has."""

import fnmatch
from dataclasses import replace

import pytest
from miniatures.right import ContinuousBatching

from conformance.core.engine import Capability
from conformance.core.family import Facts, Family
from conformance.core.schedule import Arrival, Client, Request, Schedule, Stage
from conformance.core.trace import Mode, Step, StepOutput, Stream, Trace
from conformance.plugins.servers import malformed
from conformance.report.servers import BEHAVIOURS
from conformance.scenarios import LADDER, Brief
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


def brief_of_all():
    return Brief(
        (5, 250), None, bounded=False, seed=0, capabilities=EVERYTHING,
        probes=tuple(malformed.KINDS), modalities=("text", "image"), sizes={"image": ((8, 8),)},
        heads=lambda: frozenset({64}),
        solo=lambda request, _: Stream(tuple(range(200, 200 + request.max_tokens)), None),
        compose=lambda parts: (tuple(t for p in parts if isinstance(p, tuple) for t in p), ()),
    )  # fmt: skip


def test_each_schedule_that_shows_a_behaviour_is_there(monkeypatch):
    monkeypatch.setattr(Client, "installed", True)
    briefs = [replace(brief_of_all(), library=name) for name in ("mlx_lm", "mlx_vlm")]
    made = {s.name: [schedule for b in briefs for schedule in s.make(b)] for s in SERVED_SCENARIOS}
    for what in BEHAVIOURS:
        names = [schedule.name for schedule in made[what.scenario]]
        assert names
        for wanted in what.schedules:
            assert fnmatch.filter(names, wanted), f"{what.scenario} has no schedule {wanted}"


def test_an_answer_that_nobody_reads_is_more_than_a_system_keeps():
    """Linux keeps up to 4 MB of a connection; a server waits for its client after that."""
    brief = brief_of_all()
    (leaves,) = [scenario for scenario in SERVED_SCENARIOS if scenario.name == "served_leaves"]
    (unread,) = [schedule for schedule in leaves.make(brief) if schedule.name == "unread"]
    (request,) = [one for one in unread.requests if one.asked and one.asked.unread]
    words = {token: word for word, token in unread.options.words}
    answer = brief.solo(request, unread.options).tokens
    assert sum(len(words.get(token, "")) for token in answer) > 4 * 2**20


@pytest.mark.parametrize(
    ("config", "joins", "leaves"),
    [
        ({}, True, True),
        ({"n_positions": 4000}, False, True),
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
