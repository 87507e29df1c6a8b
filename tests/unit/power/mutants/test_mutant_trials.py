"""When a mutant counts as killed beside what kills a fault."""

from conformance.core.verdict import CaseResult, Finding, ScheduleResult, Verdict
from conformance.power.mutants.mutant_trials import as_fault, kill_of
from conformance.power.mutants.reach import Place
from conformance.report.mutants import Mutant

CASE = "mlx_lm/llama/ragged/float32/0"
PLACE = Place(CASE, "a", 0.1, good=True)
FAULT = as_fault(Mutant("m.py", "f", "number", "x = 1", "x = 2", 1, (1, 1), 0, 1, "2"))


def result(verdict, *findings):
    return CaseResult(
        case=CASE,
        engine="mlx_lm",
        family="llama",
        scenario="ragged",
        dtype="float32",
        seed=0,
        verdict=verdict,
        expected=True,
        max_abs_diff=None,
        noise=None,
        first_bad_step=None,
        evidence=findings,
        versions={},
        device="cpu",
        seconds=1.0,
        schedules=(ScheduleResult("a", verdict),),
    )


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
