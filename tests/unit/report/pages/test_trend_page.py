"""Many runs as a page."""

from results_by_hand import make_finding, make_result

from conformance.core.verdict import ScheduleResult, Verdict
from conformance.report.history import histories
from conformance.report.pages.environment import Renderer
from conformance.report.pages.trend_page import Total, render_trend, rows, totals


def result(family, *verdicts):
    """A case with a schedule for each verdict."""
    worst = max(verdicts, key=lambda verdict: verdict.severity)
    schedules = tuple(ScheduleResult(f"s{n}", verdict) for n, verdict in enumerate(verdicts))
    finding = make_finding(worst, what="token 3 differs", schedule="s0")
    case = f"mlx_lm/{family}/ragged/float32/0"
    return make_result(case, worst, schedules=schedules, evidence=(finding,))


RUNS = (
    ("0.1", (result("llama", Verdict.CRASH, Verdict.EXACT), result("bloom", Verdict.DRIFT))),
    ("0.2", (result("llama", Verdict.EXACT, Verdict.EXACT), result("bloom", Verdict.DRIFT))),
    ("0.3", (result("llama", Verdict.UNSUPPORTED, Verdict.EXACT),)),
)
FOUND = histories(RUNS)


def test_each_run_is_counted():
    assert totals(["0.1", "0.2", "0.3"], FOUND) == (
        Total("0.1", 1, 2, 0),
        Total("0.2", 2, 1, 0),
        Total("0.3", 1, 0, 2),
    )


def test_a_family_that_changed_comes_first():
    found = rows(FOUND)
    assert [(row.name, row.changes) for row in found] == [
        ("mlx_lm/llama", True),
        ("mlx_lm/bloom", False),
    ]
    assert [(cell.mark, cell.wrong, cell.decided) for cell in found[0].cells] == [
        ("C", 1, 2),
        (".", 0, 2),
        (".", 0, 1),
    ]
    assert (found[1].cells[2].mark, found[1].cells[2].decided) == ("", 0)


def test_the_page_says_what_came_and_went_and_what_lasts():
    text = render_trend(RUNS, Renderer())
    assert "crash in 0.1; right in 0.2" in text
    assert "Wrong in every decided run" in text
    assert "0.2: 1 wrong" in text
    assert "token 3 differs" in text


def test_one_run_and_none_have_a_page():
    for runs in (RUNS[:1], ()):
        assert "Families by run" in render_trend(runs, Renderer())


def test_hostile_names_are_text():
    name = "<script>window.pwned = 1</script>"
    runs = ((name, (make_result(f"{name.replace('/', '|')}/f/s/d/0"),)),)
    assert "<script>window" not in render_trend(runs, Renderer())
