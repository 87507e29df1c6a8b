"""One judge for all: what is known, mended and diagnosed, of families and checkpoints."""

from types import SimpleNamespace

import pytest
from miniatures.library import ForgetfulLibrary, ToyLibrary
from miniatures.right import ContinuousBatching
from miniatures.sessions import entry_of_wrong, padding_is_masked, toy_family, toy_session
from miniatures.wrong import AttendsToPadding, LosesFirstToken
from results_by_hand import make_finding, make_result

from conformance.checks.expectations import Defect, Expectations
from conformance.checks.expectations.entries import Refusal
from conformance.core.family import Checkpoint, Family
from conformance.core.verdict import CaseId, ScheduleResult, Verdict
from conformance.run.case_judge import CaseJudge, Showing
from conformance.run.diagnosis import CHECK
from conformance.run.tiers import WHOLE, Tier

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


DEFAULT = Tier("default")
SCENARIOS = ("batch_of_one", "ragged", "chunked", "staggered", "traffic")


def case(scenario, **changes):
    fields = {"engine": "wrong", "family": "calm", "dtype": "float32", "seed": 0}
    return CaseId(**(fields | changes), scenario=scenario)


RUN = tuple(map(case, SCENARIOS))


def padding_entry(name="padding-attended", **changes):
    verdicts = dict.fromkeys(("ragged", "chunked", "staggered"), Verdict.DIVERGED)
    return entry_of_wrong(name, **{"verdicts": verdicts, **changes})


def judge_of_run(*entries, engine=AttendsToPadding, tier=DEFAULT, run=RUN, mends=None, refusals=()):
    mends = [padding_is_masked] if mends is None else mends
    session = toy_session({"wrong": engine}, mends=mends, options={"tier": tier})
    return CaseJudge(session, Expectations(entries, refusals), cases=run), session


def play(judge, session, one):
    return judge.judged(one, judge.played(one, lambda: session.run(one)))


def alone(*entries, **options):
    """The scenarios whose cases are run mended alone."""
    judge, session = judge_of_run(*entries, **options)
    run = options.get("run", RUN)
    showing = Showing(judge._known, session.registry, session.tier, run)
    return {one.scenario for one in run if showing.to_mend(one)}


def test_the_lowest_rung_shows_it_and_the_others_are_run_mended_alone():
    judge, session = judge_of_run(padding_entry())
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
    judge, _ = judge_of_run(padding_entry())
    ran = []
    judge.played(case("chunked"), lambda: ran.append("as released"))
    assert ran == []
    judge.played(case("ragged"), lambda: ran.append("as released"))
    assert ran == ["as released"]


def test_a_defect_behind_it_is_found_and_the_case_judged_as_always():
    class Both(AttendsToPadding, LosesFirstToken):
        pass

    known = padding_entry(verdicts={"ragged": Verdict.PROTOCOL, "staggered": Verdict.PROTOCOL})
    judge, session = judge_of_run(known, engine=Both)
    found = play(judge, session, case("staggered"))
    assert not found.expected
    assert not found.mended_alone
    assert found.mended.verdict is Verdict.PROTOCOL


def test_a_defect_that_is_gone_is_seen():
    judge, session = judge_of_run(padding_entry(), engine=ContinuousBatching)
    shown = play(judge, session, case("ragged"))
    assert not shown.expected
    assert "wants diverged, got exact" in shown.evidence[-1].what


def test_without_a_mend_for_it_a_case_is_run_as_released():
    judge, session = judge_of_run(padding_entry(), mends=[])
    found = play(judge, session, case("staggered"))
    assert (found.verdict, found.unmended) == (Verdict.DIVERGED, ("padding-attended",))


NARROW = padding_entry(verdicts={"chunked": Verdict.DIVERGED}, schedules={"chunked": ("edges",)})
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
        ([padding_entry()], {}, {"chunked", "staggered", "traffic"}),
        ([padding_entry()], {"tier": WHOLE}, set()),
        ([padding_entry(by_time=True)], {}, {"traffic"}),
        ([padding_entry(families=("other",))], {}, set()),
        ([padding_entry(families=("other",), traits=("cache:*",))], {}, set()),
        ([padding_entry(dtypes=("float16",), may_show_in=("float32",))], {}, set()),
        ([padding_entry(versions="<1")], {}, set()),
        ([padding_entry(device="gpu")], {}, set()),
        ([padding_entry()], {"refusals": (REFUSED,)}, set()),
        ([padding_entry()], {"run": tuple(case(s, seed=1) for s in SCENARIOS)}, set()),
        ([padding_entry()], {"run": (case("staggered"), case("traffic"))}, {"traffic"}),
        ([padding_entry()], {"run": (case("traffic"),)}, {"traffic"}),
        ([padding_entry(in_workloads=False)], {}, {"chunked", "staggered"}),
        ([NARROW], {"run": (case("ragged"), case("traffic"))}, set()),
        ([padding_entry(verdicts={"traffic": Verdict.DIVERGED})], {}, set()),
        (
            [padding_entry(), padding_entry("other", verdicts={"traffic": Verdict.DIVERGED})],
            {},
            {"chunked", "staggered"},
        ),
        # Each entry is shown: the second one by a rung of its own.
        (
            [padding_entry(), padding_entry("other", verdicts={"chunked": Verdict.DIVERGED})],
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

    assert alone(padding_entry(), tier=Trimmed("default")) == {"ragged", "staggered", "traffic"}


def test_what_only_a_left_out_schedule_shows_is_no_reason():
    class WithoutEdges(Tier):
        def keeps(self, family, scenario, schedule):
            return schedule != "edges"

    assert alone(padding_entry(), NARROW, tier=WithoutEdges("default")) == {
        "chunked",
        "staggered",
        "traffic",
    }
    assert alone(NARROW, padding_entry("other"), tier=DEFAULT) == {"staggered", "traffic"}


def test_a_stored_result_counts_only_if_it_would_be_run_so_now():
    judge, session = judge_of_run(padding_entry())
    shown, other = (play(judge, session, case(name)) for name in ("ragged", "chunked"))
    assert judge.judged_again(shown) == shown
    assert judge.judged_again(other) == other
    narrow, _ = judge_of_run(padding_entry(), run=(case("chunked"),))
    assert narrow.judged_again(other) is None, "now it shows the defect"
    both, _ = judge_of_run(
        padding_entry(), padding_entry("also", verdicts={"staggered": Verdict.DIVERGED})
    )
    assert both.judged_again(other) == other
    fixed, _ = judge_of_run()
    assert fixed.judged_again(other) is None
    as_released, _ = judge_of_run(padding_entry(), tier=WHOLE)
    assert as_released.judged_again(other) is None
