"""Behind how many cases with known defects a new one would be seen."""

from results_by_hand import make_result

from conformance.core.verdict import MendedResult, ScheduleResult, Verdict
from conformance.report.behind_known import behind_known

RIGHT = MendedResult(Verdict.EXACT, ("a",))


def known(name, verdict=Verdict.DIVERGED, **changes):
    case = f"mlx_lm/{name}/ragged/float32/0"
    return make_result(case, verdict, **{"expected": True, "known": "a", **changes})


def test_a_run_without_known_defects_says_nothing():
    assert behind_known([make_result()]).sentence == ""


def test_cases_are_counted_by_whether_they_are_right_once_mended():
    found = behind_known(
        [
            known("one", mended=RIGHT),
            known("two", mended=RIGHT, unmended=("b",)),
            known("three", unmended=("b", "c")),
            known("refused", Verdict.UNSUPPORTED),
            known("new", expected=False),
            make_result(),
        ]
    )
    assert (found.cases, found.mended, found.hidden) == (3, 1, 2)
    assert found.hiding == (("b", 2), ("c", 1))
    assert found.sentence == (
        "known defects show in 3 cases, 1 right once mended; behind the other 2 a new one would "
        "not be seen (no mend: b, c)"
    )


def schedules(**verdicts):
    return tuple(ScheduleResult(name, Verdict(verdict)) for name, verdict in verdicts.items())


def test_only_schedules_that_were_played_mended_are_said_to_hide_nothing():
    failed = schedules(a="diverged", b="diverged", c="crash", d="exact", e="unsupported")
    mended = MendedResult(Verdict.EXACT, ("a",), ("a",))
    part = known("one", mended=mended, schedules=failed)
    assert behind_known([part, known("two", mended=RIGHT)]).sentence == (
        "known defects show in 2 cases, 2 right once mended (1 of them in part: 1 of 3 failed "
        "schedules played mended; behind the other 2 a new defect would not be seen, --tier full "
        "plays more)"
    )


def test_where_all_failed_schedules_were_played_mended_nothing_hides():
    failed = schedules(a="diverged", b="crash", c="exact", d="unsupported")
    mended = MendedResult(Verdict.EXACT, ("a",), ("a", "b"))
    sentence = behind_known([known("one", mended=mended, schedules=failed)]).sentence
    assert sentence.endswith("1 right once mended: a new defect behind them would be seen")


def test_where_all_are_right_once_mended_nothing_hides():
    sentence = behind_known([known("one", mended=RIGHT)]).sentence
    assert sentence.endswith("1 right once mended: a new defect behind them would be seen")
