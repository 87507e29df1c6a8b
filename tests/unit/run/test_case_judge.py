"""One judge for all: what is known, mended and diagnosed, of families and checkpoints."""

from types import SimpleNamespace

import pytest
from miniatures.library import ForgetfulLibrary, ToyLibrary
from miniatures.sessions import padding_is_masked, toy_family, toy_session
from miniatures.wrong import AttendsToPadding
from results_by_hand import make_finding, make_result

from conformance.checks.expectations import Defect, Expectations
from conformance.core.family import Checkpoint, Family
from conformance.core.verdict import CaseId, ScheduleResult, Verdict
from conformance.run.case_judge import CaseJudge
from conformance.run.diagnosis import CHECK

RAGGED = CaseId("wrong", "mine", "ragged", "float32", 0)


def entry(*families, **changes):
    fields = {"id": "padding-attended", "engines": ("wrong",), "families": families, "why": "it is"}
    fields |= {"package": "toy", "versions": ">=1", "where": "wrong.py:1"}
    return Defect(**fields, **{"verdicts": {"ragged": Verdict.DIVERGED}, **changes})


def judge_of(*entries, engine=AttendsToPadding, library=ToyLibrary, checkpoint=None, **options):
    """A judge, and what ``RAGGED`` gives as released; the family's module is ``calm``."""
    family = toy_family("mine", module="calm")
    if checkpoint is not None:
        family = Family(family.name, family.facts, family.config, checkpoint=checkpoint)
    session = toy_session(
        {"wrong": engine}, library=library(), families=[family], mends=[padding_is_masked]
    )
    return CaseJudge(session, Expectations(entries), **options), session.run(RAGGED)


@pytest.mark.parametrize("options", [{"like_module": True}, {"checkpoint": Checkpoint("")}])
def test_what_is_known_of_the_module_is_mended_in_its_other_families(options):
    judge, released = judge_of(entry("calm"), **options)
    result = judge.judged(RAGGED, released)
    assert (result.expected, result.family, result.known) == (True, "mine", "padding-attended")
    assert result.right_once_mended
    assert judge.mends_of(released) == (padding_is_masked,)
    assert judge.judged_again(result) == result
    assert judge.judged_again(released) is None, "it has not been played mended"


def test_of_a_family_of_its_own_only_what_names_it_is_known():
    judge, released = judge_of(entry("calm"))
    result = judge.judged(RAGGED, released)
    assert (result.expected, result.known, result.mended) == (False, None, None)
    judge, released = judge_of(entry("mine"))
    assert judge.judged(RAGGED, released).right_once_mended


def test_where_nothing_is_mended_a_known_defect_is_known_all_the_same():
    judge, released = judge_of(entry("mine"), mends=False)
    result = judge.judged(RAGGED, released)
    assert (result.expected, result.mended) == (True, None)
    assert judge.judged_again(result) == result


def test_what_failed_is_diagnosed_and_nothing_else_is():
    judge, released = judge_of()
    result = judge.diagnosed(RAGGED, judge.judged(RAGGED, released))
    assert [finding.check for finding in result.evidence][-1] == CHECK
    judge, released = judge_of(entry("mine"))
    known = judge.judged(RAGGED, released)
    assert judge.diagnosed(RAGGED, known) is known
    hung = make_result(str(RAGGED), Verdict.HANG)
    assert judge.diagnosed(RAGGED, hung) is hung, "it would hang again"


def test_a_defect_behind_a_known_one_of_the_module_is_seen():
    judge, released = judge_of(entry("calm"), library=ForgetfulLibrary, like_module=True)
    assert not judge.judged(RAGGED, released).expected


def test_what_is_new_beside_what_is_known_of_a_checkpoints_module_is_all_that_counts():
    known = Expectations((entry("calm", schedules={"ragged": ("late",)}),))
    family = SimpleNamespace(module="calm", checkpoint=Checkpoint(""))
    registry = SimpleNamespace(family_of=lambda case: family)
    judge = CaseJudge(SimpleNamespace(registry=registry), known)

    def result(*schedules):
        evidence = tuple(make_finding(schedule=name) for name in schedules)
        played = tuple(ScheduleResult(name, Verdict.DIVERGED) for name in schedules)
        return make_result(
            str(RAGGED),
            Verdict.DIVERGED,
            evidence=evidence,
            schedules=played,
            versions={"toy": "1"},
        )

    assert judge.compared(result("late")).expected
    both = judge.compared(result("late", "early"))
    assert not both.expected
    assert [finding.known for finding in both.evidence] == ["padding-attended", ""]
    good = make_result(str(RAGGED))
    assert judge.compared(good) == good, "a checkpoint that does not show it breaks no rule"
