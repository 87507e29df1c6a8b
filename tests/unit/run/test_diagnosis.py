"""A failing case is played on engines that are right by construction: model or engine?"""

import pytest
from miniatures.fakes import NeverPads
from miniatures.library import ToyLibrary
from miniatures.right import AllAtOnce, ContinuousBatching
from miniatures.sessions import toy_session
from miniatures.wrong import AttendsToPadding, SaysUnsupported

from conformance.core.errors import Unsupported
from conformance.core.verdict import CaseId, Verdict
from conformance.run.diagnosis import CHECK, conclusion, diagnose, opinions


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


def test_an_engine_that_pads_nothing_is_right_all_the_same():
    assert diagnosed(NeverPads) == "engine or cache: the same model is right on sure0"


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


def test_only_engines_that_can_express_the_scenario_are_run():
    opened = session(ContinuousBatching, AllAtOnce)
    ragged = CaseId("tested", "calm", "ragged", "float32", 0)
    joins = CaseId("tested", "calm", "staggered", "float32", 0)
    repeat = CaseId("tested", "calm", "repeat", "float32", 0)
    assert opinions(opened, ragged) == ("sure0", "sure1")
    assert opinions(opened, joins) == ("sure0",)
    assert opinions(opened, repeat) == ()


def test_an_engine_that_gives_second_opinions_does_not_judge_itself():
    opened = session(ContinuousBatching)
    assert opinions(opened, CaseId("sure0", "calm", "ragged", "float32", 0)) == ()


def test_what_an_engine_refuses_counts_for_nothing():
    verdicts = {"one": Verdict.UNSUPPORTED, "two": Verdict.EXACT}
    assert conclusion(verdicts) == "engine or cache: the same model is right on two"
