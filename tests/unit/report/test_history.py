"""Which verdicts make a defect come or go."""

import msgspec
import pytest
from results_by_hand import make_result

from conformance.core.contracts import Cost
from conformance.core.verdict import Finding, MendedResult, ScheduleResult, Verdict
from conformance.report.history import State, histories
from conformance.tools.releases.pins import Release
from conformance.tools.releases.release_run import Column
from conformance.tools.releases.release_table import as_markdown, as_text, make_table

CASE = "mlx_lm/llama/ragged/float32/0"


def column(version, verdict, *, schedules=("ragged",)):
    release = Release("mlx-lm", version)
    if verdict is None:
        return Column(release, problem="cannot be installed: no such release")
    result = make_result(
        CASE,
        verdict,
        evidence=(Finding(verdict, "forced", f"seen in {version}", schedule="ragged"),),
        schedules=tuple(ScheduleResult(name, verdict) for name in schedules),
    )
    return Column(release, (result,))


def histories_of(columns):
    return histories([(column.release.version, column.results) for column in columns])


def history(*verdicts):
    (found,) = histories_of([column(f"0.{i}", verdict) for i, verdict in enumerate(verdicts)])
    return found


def test_a_defect_goes_with_the_first_release_that_is_right():
    found = history(Verdict.CRASH, Verdict.DIVERGED, Verdict.EXACT, Verdict.EXACT)
    assert found.changed
    assert found.shape == "crash in 0.0; diverged in 0.1; right from 0.2"
    assert found.example == "seen in 0.1"


def test_a_release_of_unknown_state_neither_ends_nor_begins_a_defect():
    found = history(Verdict.DRIFT, Verdict.UNSUPPORTED, None, Verdict.DRIFT)
    assert not found.changed
    assert found.shape == "drift from 0.0"


def test_a_defect_that_comes_and_goes_is_reported_twice():
    found = history(Verdict.EXACT, Verdict.NAN, Verdict.NAN, Verdict.EXACT, Verdict.NAN)
    assert found.shape == "right in 0.0; nan in 0.1 to 0.2; right in 0.3; nan in 0.4"


def test_a_case_that_failed_before_any_schedule_is_reported_as_a_whole():
    (found,) = histories_of([column("0.1", Verdict.CRASH, schedules=())])
    assert (found.schedule, found.states) == ("", (State.WRONG,))


def test_a_case_that_failed_before_any_schedule_counts_for_all_that_others_played():
    whole = column("0.1", Verdict.CRASH, schedules=())
    found = histories_of([whole, column("0.2", Verdict.EXACT, schedules=("ragged", "wide"))])
    assert [(h.schedule, h.shape) for h in found] == [
        ("ragged", "crash in 0.1; right in 0.2"),
        ("wide", "crash in 0.1; right in 0.2"),
    ]
    assert all(h.changed for h in found)


def bad(version, verdict, *findings, mended=None):
    """A release whose schedule has these findings."""
    (result,) = column(version, verdict).results
    return Column(
        Release("mlx-lm", version),
        (msgspec.structs.replace(result, evidence=findings, mended=mended),),
    )


def at(request, step, **more):
    return Finding(
        Verdict.DRIFT, "forced", "off", schedule="ragged", request_id=request, step=step, **more
    )


def raised(text):
    return Finding(Verdict.CRASH, "failure", f"raised {text}", schedule="ragged", got=text)


def test_the_same_verdict_on_other_requests_is_another_defect():
    table = make_table(
        [bad("0.1", Verdict.DRIFT, at("a", 0)), bad("0.2", Verdict.DRIFT, at("b", 0))]
    )
    assert not table.changes
    assert table.unlike == (
        "mlx_lm/llama ragged (ragged): drift (a from token 0) in 0.1; "
        "drift (b from token 0) in 0.2",
    )


@pytest.mark.parametrize("verdict", [Verdict.PROTOCOL, Verdict.LEAK, Verdict.ORACLE])
def test_a_wrong_count_or_a_leak_in_both_does_not_hide_the_tokens_that_are_wrong_in_one(verdict):
    one, both = at("a", 0), Finding(verdict, "free", "counts", schedule="ragged", got="9")
    made = bad("0.1", verdict, both)
    other = msgspec.structs.replace(made.results[0], evidence=(both, one))
    table = make_table([Column(made.release, (other,)), bad("0.2", verdict, both)])
    assert "a from token 0) in 0.1" in table.unlike[0]


@pytest.mark.parametrize(
    ("before", "after"),
    [(Verdict.UNSUPPORTED, Verdict.EXACT), (Verdict.CRASH, Verdict.DIVERGED)],
)
def test_what_was_refused_or_ended_and_then_is_not_is_noted(before, after):
    table = make_table([column("0.1", before), column("0.2", after)])
    assert len(table.unlike) == 1
    assert table.unlike[0].startswith(f"mlx_lm/llama ragged (ragged): {before}")


def test_behind_a_known_defect_another_one_is_seen():
    repaired = MendedResult(Verdict.DRIFT, ("known",), ("ragged",))
    right = MendedResult(Verdict.EXACT, ("known",), ("ragged",))
    first = bad("0.1", Verdict.DRIFT, at("a", 0), at("b", 2, mended="known"), mended=repaired)
    second = bad("0.2", Verdict.DRIFT, at("a", 0), mended=right)
    table = make_table([first, second])
    assert table.changes == (
        "mlx_lm/llama ragged (ragged, known defects mended): drift in 0.1; right in 0.2 - off",
    )
    assert not table.unlike
    assert [h.schedule for h in histories_of([first, second])] == ["ragged"]


def test_a_schedule_that_was_run_only_mended_says_nothing_as_released():
    alone = MendedResult(Verdict.EXACT, ("known",), ("ragged",), alone=True)
    right = MendedResult(Verdict.EXACT, ("known",), ("ragged",))
    first = bad("0.1", Verdict.DRIFT, at("a", 0), mended=right)
    made = column("0.2", Verdict.EXACT)
    played = (ScheduleResult("ragged", Verdict.EXACT),)
    as_released = msgspec.structs.replace(made.results[0], schedules=played)
    for mended, changes in ((None, 1), (alone, 0)):
        result = msgspec.structs.replace(as_released, mended=mended)
        assert len(make_table([first, Column(made.release, (result,))]).changes) == changes


def counted(version, count):
    """A right release that takes so much."""
    made = column(version, Verdict.EXACT)
    schedule = ScheduleResult("ragged", Verdict.EXACT, costs=(Cost("rows", count, 1.0),))
    result = msgspec.structs.replace(made.results[0], schedules=(schedule,))
    return Column(made.release, (result,))


def test_a_count_that_moved_between_releases_is_shown_though_all_are_right():
    unknown = column("0.2", None)
    table = make_table([counted("0.1", 1.0), unknown, counted("0.3", 0.5), counted("0.4", 0.5)])
    line = f"{CASE} rows of ragged: 1 -> 0.5, from 0.1 to 0.3"
    assert table.costs == (line,)
    assert not table.changes
    for text in (as_text(table), as_markdown(table)):
        assert "what work costs" in text.lower()
        assert line in text


def test_single_streams_that_moved_are_shown_though_all_are_right():
    def alone(version, nats):
        made = column(version, Verdict.EXACT)
        schedule = ScheduleResult("ragged", Verdict.EXACT, single_logprob=nats)
        return Column(
            made.release, (msgspec.structs.replace(made.results[0], schedules=(schedule,)),)
        )

    table = make_table([alone("0.1", -3.0), alone("0.2", -3.0), alone("0.3", -4.0)])
    line = f"{CASE} (ragged): single streams moved, by 1 nats in all, from 0.2 to 0.3"
    assert table.streams == (line,)
    for text in (as_text(table), as_markdown(table)):
        assert "single streams:" in text or "**Single streams**" in text
        assert line in text


def test_counts_that_stay_are_not_shown():
    table = make_table([counted("0.1", 1.0), counted("0.2", 1.0)])
    assert table.costs == ()
    assert "what work costs" not in as_text(table).lower()


def recorded(version, wrong, verdict=Verdict.DIVERGED):
    """A release whose result holds the same finding, of all that the schedule had."""
    made = column(version, verdict)
    schedule = ScheduleResult("ragged", verdict, wrong=wrong)
    finding = Finding(verdict, "free", "token 3 is 6", schedule="ragged", request_id="a", step=3)
    result = msgspec.structs.replace(made.results[0], schedules=(schedule,), evidence=(finding,))
    return Column(made.release, (result,))


@pytest.mark.parametrize("verdict", [Verdict.DIVERGED, Verdict.PROTOCOL])
def test_releases_differ_by_findings_that_their_results_do_not_hold(verdict):
    both = ("a from token 3", "z from token 9")
    (found,) = histories_of([recorded("0.1", both, verdict), recorded("0.2", both[:1], verdict)])
    assert found.differs
    assert "z from token 9" in found.signatures
    (alike,) = histories_of([recorded("0.1", both, verdict), recorded("0.2", both, verdict)])
    assert not alike.differs
