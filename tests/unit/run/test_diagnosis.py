"""A failing case is played on engines that are right by construction: model or engine?"""

from types import SimpleNamespace

import pytest
from miniatures.library import ToyLibrary
from miniatures.right import AllAtOnce, ContinuousBatching
from miniatures.sessions import toy_session
from miniatures.wrong import AttendsToPadding, SaysUnsupported

from conformance.core.engine import Capability
from conformance.core.engine_options import EngineOptions
from conformance.core.errors import Unsupported
from conformance.core.schedule import Arrival, Asked, Request, Schedule, Stage, Trigger
from conformance.core.token_choice import Sampler
from conformance.core.verdict import CaseId, Verdict
from conformance.run import diagnosis as module
from conformance.run.case_judge import CaseJudge
from conformance.run.diagnosis import (
    CHECK,
    before_engine,
    behind_server,
    diagnose,
    opinions,
)


def session(*kinds):
    sure = {
        f"sure{i}": type(kind.__name__, (kind,), {"opinion": True}) for i, kind in enumerate(kinds)
    }
    return toy_session({"tested": AttendsToPadding, **sure})


def diagnosed(*kinds, scenario="ragged"):
    opened = session(*kinds)
    case = CaseId("tested", "calm", scenario, "float32", 0)
    result = opened.run(case)
    assert not result.verdict.good
    diagnosis = diagnose(opened, case, result)
    assert diagnosis.verdict is result.verdict
    (*rest, last) = diagnosis.evidence
    assert tuple(rest) == result.evidence
    assert last.check == CHECK
    return last.what


def test_it_is_the_engine_where_the_model_is_right_elsewhere():
    sentence = diagnosed(ContinuousBatching)
    assert sentence == "engine or cache: the same model is right on sure0"


def test_it_is_the_model_where_it_is_wrong_everywhere():
    sentence = diagnosed(AttendsToPadding, AttendsToPadding)
    assert sentence.startswith("model: it is diverged on sure0, diverged on sure1")


def test_it_is_the_model_where_only_some_arrangement_is_right():
    assert diagnosed(ContinuousBatching, AttendsToPadding).startswith(
        "model: where rows are arranged otherwise it is right (right on sure0"
    )


@pytest.mark.parametrize("kinds", [(), (SaysUnsupported,)])
def test_it_is_undecided_without_an_opinion(kinds):
    sentence = diagnosed(*kinds, scenario="window")
    assert sentence == "undecided: no reference engine can play this"


def asked(monkeypatch, *sure, cases=1):
    """The servers that are compared with an engine that fails in that many cases."""

    class Padding(AttendsToPadding):
        pass

    served = {"capabilities": Padding.capabilities | {Capability.SERVED}}
    engines = {f"server{i}": type("Server", (Padding,), served) for i in (1, 2)}
    surely = {
        f"sure{i}": type(kind.__name__, (kind,), {"opinion": True}) for i, kind in enumerate(sure)
    }
    opened = toy_session({"toy": Padding, **engines, **surely})
    names = []

    def compared(_, server, __, ___):
        names.append(server.name)
        return "it is right"

    monkeypatch.setattr(module, "before_engine", compared)
    judge = CaseJudge(opened, None, needs=False)
    for scenario in ("ragged", "staggered")[:cases]:
        case = CaseId("toy", "calm", scenario, "float32", 0)
        assert CHECK in {f.check for f in judge.diagnosed(case, opened.run(case)).evidence}
    return names


@pytest.mark.parametrize("cases", [1, 2])
def test_the_first_failure_of_an_engine_is_compared_with_one_server(monkeypatch, cases):
    assert asked(monkeypatch, ContinuousBatching, cases=cases) == ["server1"]


def test_no_server_is_started_for_a_model_that_is_wrong_itself(monkeypatch):
    assert asked(monkeypatch, AttendsToPadding) == []


class LacksAModel(ToyLibrary):
    """A release without a name that its models are made by."""

    def load(self, family, *, dtype, seed):
        raise Unsupported("calm: unsupported here: toy._classes")


def test_without_a_model_there_is_nothing_to_compare():
    sure = type("Sure", (ContinuousBatching,), {"opinion": True})
    opened = toy_session({"tested": AttendsToPadding, "sure": sure}, library=LacksAModel())
    case = CaseId("tested", "calm", "ragged", "float32", 0)
    result = opened.run(case)
    assert (result.verdict, result.schedules) == (Verdict.UNSUPPORTED, ())
    assert diagnose(opened, case, result) == result


@pytest.mark.parametrize("error", [Unsupported("no layer keeps keys"), AttributeError("shape")])
def test_a_model_that_fails_where_schedules_are_made_is_diagnosed(monkeypatch, error):
    opened = session(AttendsToPadding, AttendsToPadding)
    case = CaseId("tested", "calm", "ragged", "float32", 0)
    result = opened.run(case)

    def fails(case):
        raise error

    monkeypatch.setattr(opened, "schedules", fails)
    assert diagnose(opened, case, result).evidence[-1].what.startswith("model: it is diverged")


def test_only_engines_that_can_express_the_scenario_are_run():
    opened = session(ContinuousBatching, AllAtOnce)
    ragged = CaseId("tested", "calm", "ragged", "float32", 0)
    joins = CaseId("tested", "calm", "staggered", "float32", 0)
    repeat = CaseId("tested", "calm", "repeat", "float32", 0)
    assert opinions(opened, ragged) == ("sure0", "sure1")
    assert opinions(opened, joins) == ("sure0",)
    assert opinions(opened, repeat) == ()


# A failing server's requests are given to its library's own engine --------------------------------

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
