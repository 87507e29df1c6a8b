"""The whole evidence of a case."""

from conformance.core.verdict import ScheduleResult, Verdict, WitnessResult
from conformance.report.evidence import evidence_text


def test_every_finding_is_reported(result, finding):
    evidence = (finding(), finding(Verdict.NAN, what="NaN in the cache", cause=""))
    text = evidence_text(result(verdict=Verdict.NAN, evidence=evidence))
    assert "findings: 2" in text
    assert "  1. diverged (check tokens): the token differs\n" in text
    assert "  2. nan (check tokens): NaN in the cache\n" in text
    assert text.count("where:    schedule 'long_and_short', free run, request 'r2'") == 2
    assert "cause:    not known" in text


def test_every_schedule_with_its_work(result):
    schedules = (
        ScheduleResult("short", Verdict.EXACT, 4, 0.5, 25, 75),
        ScheduleResult("much_longer", Verdict.DRIFT),
    )
    text = evidence_text(result(schedules=schedules))
    assert (
        "  short        exact          4 forward calls in 0.50 s, "
        "100 positions computed, 25 of them padding (25%)\n" in text
    )
    assert "  much_longer  drift          0 forward calls" in text


def test_the_size_of_quantized_caches_is_reported(result):
    shares = {"cache_share": 0.461, "quantized_share": 9 / 32}
    quantized = ScheduleResult("uniform_8_64", Verdict.EXACT, **shares)
    text = evidence_text(result(schedules=(quantized, ScheduleResult("plain", Verdict.EXACT))))
    assert "(0%), caches 0.46 of unquantized, 0.28 in quantized layers (3.6x)\n" in text
    assert text.count("of unquantized") == 1


def test_the_head_says_whether_it_is_expected_and_known(result):
    known = result(verdict=Verdict.DRIFT, expected=True, known="rotating")
    head = evidence_text(known).splitlines()[0]
    assert head == "drift: mlx_lm/llama/ragged/float32/0 - as expected (known: rotating)"
    assert "NOT expected" in evidence_text(result(verdict=Verdict.DRIFT)).splitlines()[0]


def test_figures_that_were_not_measured(result):
    text = evidence_text(result(max_abs_diff=None, ratio=None))
    assert "max diff:   not measured" in text
    assert "ratio:      -" in text
    assert "findings: none" in text
    assert "schedules: none recorded" in text


def test_which_schedules_showed_which_witness(result):
    witnesses = (
        WitnessResult("padding", ("ragged", "edges")),
        WitnessResult("a late hit", excused="not played: late"),
        WitnessResult("a join"),
    )
    *_, block = evidence_text(result(witnesses=witnesses)).split("\n\n")
    assert block.splitlines() == [
        "witnesses: 1 of 3 shown",
        "  padding     ragged, edges",
        "  a late hit  not required: not played: late",
        "  a join      MISSING",
    ]
    assert "witnesses" not in evidence_text(result())


def test_each_known_defect_has_the_command_that_explains_it(result):
    known = result(verdict=Verdict.DRIFT, expected=True, known="rotating, late")
    lines = evidence_text(known).splitlines()
    assert lines[1:3] == [
        "  defect:     conformance show defects rotating",
        "  defect:     conformance show defects late",
    ]
    assert "defect:" not in evidence_text(result())
