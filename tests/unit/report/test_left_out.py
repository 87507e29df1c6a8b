"""What a run leaves out, with what is known of it."""

import msgspec
from results_by_hand import make_result

from conformance.core.verdict import MendedResult, ScheduleResult, Verdict
from conformance.report.left_out import LeftOut, behind_known

A, B, C = (f"mlx_lm/llama/{name}/float32/0" for name in ("ragged", "staggered", "wide"))
RIGHT = make_result(A)
WRONG = make_result(B, Verdict.DIVERGED, expected=False)


def test_nothing_is_said_of_nothing():
    assert LeftOut().notes == LeftOut().problems == ()


def test_the_last_results_are_counted_and_failures_are_named():
    found = LeftOut.of({A: RIGHT, B: WRONG, C: None}, {A, "another"})
    assert found.notes == (
        "not run: 3 cases; last results: exact 1, diverged 1, none is known of 1",
    )
    assert found.problems == (
        f"not run, and not as expected the last time: 1 case: {B} (diverged)",
    )


def test_a_failure_whose_result_is_not_kept_is_a_failure():
    found = LeftOut.of({A: RIGHT, C: None}, {C})
    assert found.problems == (f"not run, and not as expected the last time: 1 case: {C}",)


def test_another_rule_judges_the_results_and_remembers_what_has_none():
    found = LeftOut.of({B: WRONG, C: None}, {C})
    judged = found.judged(lambda result: msgspec.structs.replace(result, expected=True))
    assert judged.failed == (C,)


# How many cases with known defects are right with these mended ------------------------------------

MENDED_RIGHT = MendedResult(Verdict.EXACT, ("a",))


def known(name, verdict=Verdict.DIVERGED, **changes):
    case = f"mlx_lm/{name}/ragged/float32/0"
    return make_result(case, verdict, **{"expected": True, "known": "a", **changes})


def test_cases_are_counted_by_whether_they_are_right_once_mended():
    found = behind_known(
        [
            known("one", mended=MENDED_RIGHT),
            known("two", mended=MENDED_RIGHT, unmended=("b",)),
            known("three", unmended=("b", "c")),
            known("refused", Verdict.UNSUPPORTED),
            known("new", expected=False),
            make_result(),
        ]
    )
    assert (found.cases, found.mended, found.hidden) == (3, 1, 2)
    assert found.hiding == (("b", 2), ("c", 1))
    assert found.sentence == (
        "known defects show in 3 cases, 1 right once mended; the other 2 may hide a new defect "
        "(no mend: b, c)"
    )


def schedules(**verdicts):
    return tuple(ScheduleResult(name, Verdict(verdict)) for name, verdict in verdicts.items())


def test_only_schedules_that_were_played_mended_are_said_to_hide_nothing():
    failed = schedules(a="diverged", b="diverged", c="crash", d="exact", e="unsupported")
    mended = MendedResult(Verdict.EXACT, ("a",), ("a",))
    part = known("one", mended=mended, schedules=failed)
    assert behind_known([part, known("two", mended=MENDED_RIGHT)]).sentence == (
        "known defects show in 2 cases, 1 right once mended; the other 1 may hide a new defect"
    )


def test_where_all_failed_schedules_were_played_mended_nothing_hides():
    failed = schedules(a="diverged", b="crash", c="exact", d="unsupported")
    mended = MendedResult(Verdict.EXACT, ("a",), ("a", "b"))
    sentence = behind_known([known("one", mended=mended, schedules=failed)]).sentence
    assert sentence.endswith("1 right once mended, in every schedule that failed")


def test_where_all_are_right_once_mended_nothing_hides():
    sentence = behind_known([known("one", mended=MENDED_RIGHT)]).sentence
    assert sentence.endswith("1 right once mended, in every schedule that failed")


def test_cases_that_were_not_run_as_released_are_counted_apart():
    mended = MendedResult(Verdict.EXACT, ("a",), alone=True)
    alone = [known(name, Verdict.EXACT, mended=mended) for name in ("two", "three")]
    assert behind_known(alone).sentence == (
        "2 cases with known defects that others show were run only with these mended (--tier full "
        "runs all as released)"
    )
    sentence = behind_known([known("one", mended=MENDED_RIGHT), alone[0]]).sentence
    shown, _, apart = sentence.partition("; ")
    assert shown.startswith("known defects show in 1 case, 1 right once mended")
    assert apart.startswith("1 case with known defects that others show was run only")
