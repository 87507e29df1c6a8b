"""One case of a run shows a known defect as released; the others are run with it mended alone."""

import pytest
from miniatures.right import ContinuousBatching
from miniatures.sessions import entry_of_wrong, padding_is_masked, toy_session
from miniatures.wrong import AttendsToPadding, LosesFirstToken

from conformance.checks.expectations import Expectations
from conformance.checks.expectations.entries import Refusal
from conformance.core.verdict import CaseId, Verdict
from conformance.run.case_judge import CaseJudge
from conformance.run.showing import Showing
from conformance.run.tiers import WHOLE, Tier

DEFAULT = Tier("default")
SCENARIOS = ("batch_of_one", "ragged", "chunked", "staggered", "traffic")


def case(scenario, **changes):
    fields = {"engine": "wrong", "family": "calm", "dtype": "float32", "seed": 0}
    return CaseId(**(fields | changes), scenario=scenario)


RUN = tuple(map(case, SCENARIOS))


def entry(name="padding-attended", **changes):
    verdicts = dict.fromkeys(("ragged", "chunked", "staggered"), Verdict.DIVERGED)
    return entry_of_wrong(name, **{"verdicts": verdicts, **changes})


def judge_of(*entries, engine=AttendsToPadding, tier=DEFAULT, run=RUN, mends=None, refusals=()):
    mends = [padding_is_masked] if mends is None else mends
    session = toy_session({"wrong": engine}, mends=mends, options={"tier": tier})
    return CaseJudge(session, Expectations(entries, refusals), cases=run), session


def play(judge, session, one):
    return judge.judged(one, judge.played(one, lambda: session.run(one)))


def alone(*entries, **options):
    """The scenarios whose cases are run mended alone."""
    judge, session = judge_of(*entries, **options)
    run = options.get("run", RUN)
    showing = Showing(judge._known, session.registry, session.tier, run)
    return {one.scenario for one in run if showing.to_mend(one)}


def test_the_lowest_rung_shows_it_and_the_others_are_run_mended_alone():
    judge, session = judge_of(entry())
    found = {one.scenario: play(judge, session, one) for one in RUN}
    assert all(result.expected for result in found.values())
    assert found["batch_of_one"].mended is None
    assert found["ragged"].verdict is Verdict.DIVERGED
    assert not found["ragged"].mended_alone
    for name in ("chunked", "staggered", "traffic"):
        result = found[name]
        assert (result.verdict, result.known) == (Verdict.EXACT, "padding-attended")
        assert result.mended_alone
        assert result.right_once_mended
        assert not result.right_as_released
        assert set(result.mended.schedules) == {s.name for s in result.schedules}


def test_the_others_are_not_run_as_released():
    judge, _ = judge_of(entry())
    ran = []
    judge.played(case("chunked"), lambda: ran.append("as released"))
    assert ran == []
    judge.played(case("ragged"), lambda: ran.append("as released"))
    assert ran == ["as released"]


def test_a_defect_behind_it_is_found_and_the_case_judged_as_always():
    class Both(AttendsToPadding, LosesFirstToken):
        pass

    known = entry(verdicts={"ragged": Verdict.PROTOCOL, "staggered": Verdict.PROTOCOL})
    judge, session = judge_of(known, engine=Both)
    found = play(judge, session, case("staggered"))
    assert not found.expected
    assert not found.mended_alone
    assert found.mended.verdict is Verdict.PROTOCOL


def test_a_defect_that_is_gone_is_seen():
    judge, session = judge_of(entry(), engine=ContinuousBatching)
    shown = play(judge, session, case("ragged"))
    assert not shown.expected
    assert "wants diverged, got exact" in shown.evidence[-1].what


def test_without_a_mend_for_it_a_case_is_run_as_released():
    judge, session = judge_of(entry(), mends=[])
    found = play(judge, session, case("staggered"))
    assert (found.verdict, found.unmended) == (Verdict.DIVERGED, ("padding-attended",))


NARROW = entry(verdicts={"chunked": Verdict.DIVERGED}, schedules={"chunked": ("edges",)})
REFUSED = Refusal(
    id="no",
    engines=("wrong",),
    families=("*",),
    dtypes=("float32",),
    text="no",
    why="no",
    package="",
)


@pytest.mark.parametrize(
    ("entries", "options", "expected"),
    [
        ([entry()], {}, {"chunked", "staggered", "traffic"}),
        ([entry()], {"tier": WHOLE}, set()),
        ([entry(by_time=True)], {}, {"traffic"}),
        ([entry(families=("other",))], {}, set()),
        ([entry(families=("other",), traits=("cache:*",))], {}, set()),
        ([entry(dtypes=("float16",), may_show_in=("float32",))], {}, set()),
        ([entry(versions="<1")], {}, set()),
        ([entry(device="gpu")], {}, set()),
        ([entry()], {"refusals": (REFUSED,)}, set()),
        ([entry()], {"run": tuple(case(s, seed=1) for s in SCENARIOS)}, set()),
        ([entry()], {"run": (case("staggered"), case("traffic"))}, {"traffic"}),
        ([entry()], {"run": (case("traffic"),)}, {"traffic"}),
        ([entry(in_workloads=False)], {}, {"chunked", "staggered"}),
        ([NARROW], {"run": (case("ragged"), case("traffic"))}, set()),
        ([entry(verdicts={"traffic": Verdict.DIVERGED})], {}, set()),
        (
            [entry(), entry("other", verdicts={"traffic": Verdict.DIVERGED})],
            {},
            {"chunked", "staggered"},
        ),
        # Each entry is shown: the second one by a rung of its own.
        (
            [entry(), entry("other", verdicts={"chunked": Verdict.DIVERGED})],
            {},
            {"staggered", "traffic"},
        ),
    ],
)
def test_which_are_run_mended_alone(entries, options, expected):
    assert alone(*entries, **options) == expected


def test_a_rung_of_which_the_tier_leaves_nothing_out_shows_it():
    class Trimmed(Tier):
        def trims(self, family, scenario):
            return scenario == "ragged"

    assert alone(entry(), tier=Trimmed("default")) == {"ragged", "staggered", "traffic"}


def test_what_only_a_left_out_schedule_shows_is_no_reason():
    class WithoutEdges(Tier):
        def keeps(self, family, scenario, schedule):
            return schedule != "edges"

    assert alone(entry(), NARROW, tier=WithoutEdges("default")) == {
        "chunked",
        "staggered",
        "traffic",
    }
    assert alone(NARROW, entry("other"), tier=DEFAULT) == {"staggered", "traffic"}


def test_a_stored_result_counts_only_if_it_would_be_run_so_now():
    judge, session = judge_of(entry())
    shown, other = (play(judge, session, case(name)) for name in ("ragged", "chunked"))
    assert judge.judged_again(shown) == shown
    assert judge.judged_again(other) == other
    narrow, _ = judge_of(entry(), run=(case("chunked"),))
    assert narrow.judged_again(other) is None, "now it shows the defect"
    both, _ = judge_of(entry(), entry("also", verdicts={"staggered": Verdict.DIVERGED}))
    assert both.judged_again(other) == other
    fixed, _ = judge_of()
    assert fixed.judged_again(other) is None
    as_released, _ = judge_of(entry(), tier=WHOLE)
    assert as_released.judged_again(other) is None
