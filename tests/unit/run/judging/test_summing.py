"""One result of what was found: the worst first, its first bad step, a cause for each."""

from conformance.core.verdict import MOST_FINDINGS, CaseId, Finding, Verdict
from conformance.run.judging.judge import Outcome
from conformance.run.judging.summing import result_of

CASE = CaseId.parse("toy/calm/ragged/float32/0")
CONTEXT = {"adds": "padding", "versions": {"toy": "1"}, "device": "cpu"}


def summed(*findings, numbers=None):
    return result_of(CASE, Outcome(findings, (), numbers), **CONTEXT)


def test_a_cause_that_is_not_named_is_what_the_rung_adds():
    found = summed(
        Finding(Verdict.DRIFT, "forced", "off"),
        Finding(Verdict.LEAK, "leak", "held", cause="its own"),
        Finding(Verdict.TIE, "free", "a tie"),
    )
    causes = {f.verdict: f.cause for f in found.evidence}
    assert causes["drift"] == "what this rung adds: padding"
    assert causes["leak"] == "its own"
    assert not causes["tie"]


def test_no_more_findings_than_a_report_holds():
    many = [Finding(Verdict.DRIFT, "forced", str(n)) for n in range(MOST_FINDINGS + 5)]
    assert len(summed(*many).evidence) == MOST_FINDINGS


def test_many_findings_of_one_schedule_leave_room_for_the_worst_of_another():
    many = [
        Finding(Verdict.DIVERGED, "free", str(n), schedule="known")
        for n in range(MOST_FINDINGS + 5)
    ]
    new = [Finding(Verdict.DRIFT, "forced", text, schedule="new") for text in ("first", "second")]
    kept = summed(*many, *new).evidence
    assert len(kept) == MOST_FINDINGS
    assert [f.what for f in kept if f.schedule == "new"] == ["first"]
    assert kept[-1].schedule == "new", "the worst comes first"
