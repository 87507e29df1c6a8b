"""A failing server's requests are given to its library's own engine."""

from types import SimpleNamespace

import pytest

from conformance.core.engine import Capability
from conformance.core.engine_options import EngineOptions
from conformance.core.schedule import Arrival, Asked, Request, Schedule, Stage, Trigger
from conformance.core.token_choice import Sampler
from conformance.core.verdict import Verdict
from conformance.run import behind_server as module
from conformance.run.behind_server import before_engine, behind_server

ENGINE = SimpleNamespace(name="own", capabilities=frozenset({Capability.LATE_JOIN}))
PLAIN = Request("a", (1, 2), 3, stop=((4,),), asked=Asked(streamed=False))
DRAWN = Request("b", (1, 2), 3, Sampler("server", {"seed": 1}))
SCHEDULE = Schedule("mixed", (Arrival((PLAIN, DRAWN)),), options=EngineOptions(busy=True))


def said(monkeypatch, verdict, schedule=SCHEDULE, *, wrong="mixed"):
    played = []

    def judged(_, __, ___, schedules):
        played.extend(schedules)
        return SimpleNamespace(verdict=verdict)

    monkeypatch.setattr(module, "judge_batched", judged)
    evidence = [SimpleNamespace(schedule=wrong, verdict=Verdict.DIVERGED)]
    text = behind_server(None, ENGINE, [schedule], SimpleNamespace(evidence=evidence))
    return text, played


@pytest.mark.parametrize(
    ("verdict", "text"),
    [
        (Verdict.EXACT, "server: its engine is right with the requests of 'mixed' (own)"),
        (Verdict.DIVERGED, "engine: own without a server is diverged with the requests of"),
        (Verdict.UNSUPPORTED, ""),
    ],
)
def test_the_engine_decides(monkeypatch, verdict, text):
    found, (played,) = said(monkeypatch, verdict)
    assert found.startswith(text)
    assert bool(found) == bool(text)
    assert played.requests == (Request("a", (1, 2), 3),)  # it has no stop sequences
    assert not played.options.busy


def test_a_schedule_that_needs_a_server_or_was_right_decides_nothing(monkeypatch):
    for schedule, wrong in (
        (Schedule("mixed", (Arrival((DRAWN,)),)), "mixed"),
        (SCHEDULE, "another"),
        (
            Schedule(
                "mixed", (Arrival((DRAWN,)), Arrival((PLAIN,), Trigger("b", Stage.DECODE, 1)))
            ),
            "mixed",
        ),
    ):
        assert said(monkeypatch, Verdict.EXACT, schedule, wrong=wrong) == ("", [])


@pytest.mark.parametrize(
    ("verdict", "text"),
    [
        (Verdict.EXACT, "its server is right with the requests of 'mixed' (served)"),
        (Verdict.DIVERGED, "its server is diverged with the requests of 'mixed', too (served)"),
        (Verdict.CRASH, "its server crashes with the requests of 'mixed' (served)"),
        (Verdict.UNSUPPORTED, ""),
        (Verdict.VACUOUS, ""),
    ],
)
def test_a_failing_engine_is_compared_with_its_server(monkeypatch, verdict, text):
    played = []

    def judged(_, __, ___, schedules):
        played.extend(schedules)
        return SimpleNamespace(verdict=verdict)

    monkeypatch.setattr(module, "judge_batched", judged)
    server = SimpleNamespace(name="served", capabilities=frozenset({Capability.SERVED}))
    evidence = [SimpleNamespace(schedule="mixed", verdict=Verdict.DIVERGED)]
    failed = SimpleNamespace(evidence=evidence, verdict=Verdict.DIVERGED)
    assert before_engine(None, server, [SCHEDULE], failed) == text
    (schedule,) = played
    assert schedule.options.busy  # so that its requests meet in one batch
