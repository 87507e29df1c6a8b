"""When a mutant counts as killed beside what kills a fault."""

from results_by_hand import make_result

from conformance.core.verdict import Finding, ScheduleResult, Verdict
from conformance.power.mutants.mutant_trials import as_fault, kill_of
from conformance.power.mutants.reach import Place
from conformance.report.mutants import Mutant

CASE = "mlx_lm/llama/ragged/float32/0"
PLACE = Place(CASE, "a", 0.1, good=True)
FAULT = as_fault(Mutant("m.py", "f", "number", "x = 1", "x = 2", 1, (1, 1), 0, 1, "2"))


def result(verdict, *findings):
    return make_result(CASE, verdict, evidence=findings, schedules=(ScheduleResult("a", verdict),))


REFUSAL = Finding(Verdict.UNSUPPORTED, "failure", "the engine refused", schedule="a")


def test_what_is_refused_only_with_the_mutant_is_killed():
    right, wrong = result(Verdict.EXACT), result(Verdict.UNSUPPORTED, REFUSAL)
    kill = kill_of(FAULT, right, wrong, PLACE)
    assert kill is not None
    assert (kill.verdict, kill.checks, kill.what) == (
        "unsupported",
        ("failure",),
        "the engine refused",
    )


def test_what_is_refused_anyway_says_nothing():
    refused = result(Verdict.UNSUPPORTED, REFUSAL)
    assert kill_of(FAULT, refused, refused, PLACE) is None
    assert kill_of(FAULT, result(Verdict.EXACT), result(Verdict.EXACT), PLACE) is None
