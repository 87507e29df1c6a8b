"""Each tiny engine gets the verdict of its one wrongness, in the scenarios that can see it.

By day in the first of these, and in workloads one engine of each verdict; by night in all, and in
all others it is exact.
"""

import msgspec
import numpy as np
import pytest
from miniatures.caching import KeepsPrefixes
from miniatures.fakes import FAKES
from miniatures.library import ForgetfulLibrary, TiedLibrary, ToyLibrary, subject
from miniatures.right import AllAtOnce, ContinuousBatching
from miniatures.sessions import toy_session
from miniatures.slots import (
    CountsFromFour,
    FixedSlots,
    KeepsSlotsCache,
    MovesRows,
    NamesNoSlots,
    NoSlots,
    SharesSlots,
)
from miniatures.wrong import (
    WRONG,
    DriftsALittle,
    JoinsOneOff,
    NanInPadding,
    RoundsOtherwise,
    SaysUnsupported,
)

from conformance.core.engine import PrefixReuse
from conformance.core.engine_options import EngineOptions
from conformance.core.schedule import Schedule
from conformance.core.verdict import CaseId, Verdict
from conformance.run.judging.judge import (
    Numbers,
    attempt,
    brief_for,
    judge_batched,
)
from conformance.run.judging.oracle_check import judge_oracle
from conformance.scenarios import LADDER, Scenario
from conformance.scenarios.batch import SLOT_REUSE
from conformance.scenarios.build import text_request, together
from conformance.scenarios.cost import COSTS
from conformance.scenarios.prefix_caching import PREFIX_CACHING
from conformance.scenarios.solo import REPEAT
from conformance.scenarios.workloads import is_workload

# Those that the toy engine can express; the others are tested with the library that has them.
EXPRESSED = tuple(
    scenario
    for scenario in LADDER
    if not scenario.oracle_only and scenario.needs <= ContinuousBatching.capabilities
)
# What is wrong in these, a scenario before them sees; tests/unit/scenarios breaks each contract.
COUNTED = tuple(scenario for scenario in EXPRESSED if scenario in COSTS)
# What takes longest, and is wasted or hidden in one way alone.
LASTING = "cost_lasting"
WORKLOADS = tuple(scenario for scenario in EXPRESSED if is_workload(scenario.name))
BATCHED = tuple(s for s in EXPRESSED if s not in COSTS and s not in WORKLOADS)
ALL = frozenset(scenario.name for scenario in BATCHED)
SEVERAL = ALL - {"batch_of_one", "stale_state"}
# Where rows are padded, or are at different positions.
RAGGED = SEVERAL - {"identical", "equal_length", "held"}
# Where a row ends, and another one decodes on or comes later.
ENDS = RAGGED - {"wide", "threads"} | {"stale_state"}
PIECES = frozenset(
    {"chunked", "staggered", "window", "cancelled", "prompt_cache", "quantized"}
    | {"media_in_pieces", "samplers", "structured"}
)
# Where a row that decodes waits for one that joins; a prompt of two tokens joins before long ones.
JOINS = ENDS - {"early_finish", "images_together", "stale_state"}

EXPECTED = {
    "LosesFirstToken": (Verdict.PROTOCOL, JOINS),
    "RepeatsToken": (Verdict.PROTOCOL, ENDS),
    "YieldsAfterFinish": (Verdict.PROTOCOL, ENDS),
    "YieldsAfterRemoval": (Verdict.PROTOCOL, {"cancelled", "mixed_modality", "structured"}),
    "CallsEveryEndStop": (Verdict.PROTOCOL, ALL),
    "YieldsForAStranger": (
        Verdict.PROTOCOL,
        {"cancelled", "mixed_modality", "media_in_pieces", "structured"},
    ),
    "HidesLogprobs": (Verdict.PROTOCOL, SEVERAL),
    "AttendsToPadding": (Verdict.DIVERGED, RAGGED),
    "NanInPadding": (Verdict.NAN, RAGGED),
    "RowZeroOffset": (Verdict.DIVERGED, RAGGED),
    "CountsColumnsAlone": (Verdict.DIVERGED, {"cancelled", "media_in_pieces"}),
    "AnswersFirstRow": (Verdict.DIVERGED, SEVERAL - {"identical"}),
    "JoinsOneOff": (
        Verdict.DIVERGED,
        {"staggered", "window", "cancelled", "prompt_cache", "stop_sequences"}
        | {"samplers", "invalid", "quantized", "mixed_modality", "structured"},
    ),
    "WrongBeyondEightRows": (Verdict.DIVERGED, {"wide"}),
    "NeverEndsAtFirstToken": (Verdict.PROTOCOL, {"early_finish", "stop_sequences"}),
    "SwapsRowsAfterFilter": (
        Verdict.DIVERGED,
        {"chunked", "early_finish", "prompt_cache", "stop_sequences", "samplers", "quantized"}
        | {"media_in_pieces", "structured"},
    ),
    "MixesScales": (Verdict.DRIFT, {"quantized"}),
    "SwapsImages": (Verdict.DIVERGED, {"images_together", "mixed_modality"}),
    "CutsImages": (Verdict.DIVERGED, {"media_in_pieces"}),
    "ImagesShiftJoins": (Verdict.DIVERGED, {"mixed_modality"}),
    "RemembersText": (Verdict.DIVERGED, {"stale_state", "prompt_cache"}),
    "KeepsArraysOfAllSteps": (Verdict.LEAK, {"held"}),
    "KeepsCache": (Verdict.LEAK, {"cancelled", "media_in_pieces"}),
    "InheritsSlotState": (
        Verdict.DIVERGED,
        {
            *("slot_reuse", "prompt_cache", "samplers", "invalid", "mixed_modality", "quantized"),
            "structured",
        },
    ),
    "ComputesGhostRows": (Verdict.LEAK, ENDS),
    "LosesTokenBetweenPieces": (Verdict.DIVERGED, PIECES),
    "ForgetsBound": (Verdict.DIVERGED, {"window"}),
    "SharesExtractedCache": (Verdict.DIVERGED, {"prompt_cache"}),
    "KeepsFirstSampler": (Verdict.DIVERGED, {"samplers", "prompt_cache"}),
    "SharesSeeds": (Verdict.DIVERGED, {"samplers"}),
    "ShiftsProcessors": (Verdict.DIVERGED, {"samplers", "structured", "prompt_cache"}),
    "MovesGrammarsLate": (Verdict.DIVERGED, {"structured"}),
    "StopsLate": (Verdict.PROTOCOL, {"stop_sequences", "early_finish", "prompt_cache"}),
    "StopsWithHalf": (Verdict.PROTOCOL, {"stop_sequences", "prompt_cache"}),
    "FollowsOneSequence": (Verdict.PROTOCOL, {"stop_sequences"}),
    "AcceptsInvalid": (Verdict.PROTOCOL, {"invalid"}),
    "RefusesUnclearly": (Verdict.PROTOCOL, {"invalid"}),
    "HalfAppliesInvalid": (Verdict.PROTOCOL, {"invalid"}),
    "WaitsForWholePrefill": (Verdict.HANG, {"invalid"}),
    "CrashesOnJoin": (Verdict.CRASH, JOINS),
    "SaysUnsupported": (Verdict.UNSUPPORTED, {"window", "prompt_cache"}),
    "NeverEnds": (
        Verdict.HANG,
        {"slot_reuse", "window", "prompt_cache", "samplers", "invalid", "stop_sequences"}
        | {"mixed_modality", "stale_state", "quantized", "structured"},
    ),
    "CrashesOnOtherThread": (Verdict.CRASH, {"threads"}),
    "ReadsUnwrittenMemory": (Verdict.UNSTABLE, SEVERAL),
    "DriftsALittle": (Verdict.DRIFT, SEVERAL),
}

# What has no ingredient in a workload: media in pieces, bounds, caches that are quantized or
# extracted, grammars, invalid calls, threads, a release of all rows but a padded one.
NOT_IN_WORKLOADS = {
    *("CutsImages", "ForgetsBound"),
    *("SharesExtractedCache", "MovesGrammarsLate", "AcceptsInvalid", "RefusesUnclearly"),
    *("HalfAppliesInvalid", "WaitsForWholePrefill", "SaysUnsupported", "CrashesOnOtherThread"),
    "CountsColumnsAlone",
}

# By day one of each verdict that a workload sees.
BY_DAY = {verdict: name for name, (verdict, _) in EXPECTED.items() if name not in NOT_IN_WORKLOADS}

# What each fake leaves out: these scenarios are vacuous on it, and all others exact.
VACUOUS = {
    "OneByOne": SEVERAL - {"held"},
    "NeverPads": {"identical", "equal_length", "ragged", "chunked", "prompt_cache", "quantized"},
    "JoinsLate": {"staggered", "window", "stop_sequences", "samplers", "mixed_modality"},
    "PrefillsWhole": {"chunked", "cancelled", "media_in_pieces", "samplers"},
    "PrefillsAtOnce": {"chunked", "cancelled", "media_in_pieces", "samplers", "structured"},
    "NeverQuantizes": {"quantized"},
    "HasMoreSlots": {"slot_reuse", "cancelled", "mixed_modality"},
    "PadsAlways": {"identical", "equal_length"},
    "Unmetered": ALL
    - {"window", "stop_sequences", "mixed_modality", "media_in_pieces", "structured", "held"},
    "WithoutProbes": {"invalid"},
    "WithoutStages": {
        *("staggered", "window", "cancelled", "prompt_cache", "stop_sequences"),
        *("samplers", "invalid", "quantized", "structured", "held"),
        *("mixed_modality", "media_in_pieces", "stale_state"),
    },
    "AnswersAtOnce": {
        *("staggered", "window", "cancelled", "prompt_cache", "stop_sequences"),
        *("samplers", "invalid", "quantized", "structured", "held"),
        *("mixed_modality", "media_in_pieces", "stale_state"),
    },
}

# What each fake wastes or hides; all else is exact.
WASTED = {
    "OneByOne": {
        "cost_late": Verdict.COST,
        "cost_rows": Verdict.VACUOUS,
        "cost_reads": Verdict.VACUOUS,
    },
    "JoinsLate": {"cost_late": Verdict.COST},
    "PrefillsWhole": {"cost_positions": Verdict.COST},
    "PrefillsAtOnce": {"cost_late": Verdict.COST},
    "NeverQuantizes": {"cost_quantized": Verdict.VACUOUS},
    "Unmetered": dict.fromkeys(("cost_positions", "cost_rows"), Verdict.VACUOUS),
    "WithoutStages": dict.fromkeys(("cost_rows", "cost_late", "cost_reads"), Verdict.VACUOUS),
    "AnswersAtOnce": dict.fromkeys(
        ("cost_rows", "cost_late", "cost_reads", "cost_lasting", "cost_quantized"), Verdict.VACUOUS
    ),
}


@pytest.fixture(scope="module")
def toy():
    """One subject for all: its single streams are made once."""
    return subject()


def judge(toy, engine, scenario, until=None):
    schedules = scenario.make(brief_for(toy, engine, 0))
    return judge_batched(toy, engine, scenario, schedules, until=until)


def until_bad(findings):
    return any(not finding.verdict.good for finding in findings)


def verdicts(toy, engine, scenarios=BATCHED, until=None):
    """The verdict of each scenario that the engine can express."""
    return {
        scenario.name: judge(toy, engine, scenario, until).verdict
        for scenario in scenarios
        if scenario.needs <= engine.capabilities
    }


@pytest.mark.parametrize(
    "scenario",
    # By day tests/faults counts a right engine of a library for as long.
    [
        pytest.param(s, id=s.name, marks=[pytest.mark.nightly] * (s.name == LASTING))
        for s in EXPRESSED
    ],
)
def test_a_right_engine_is_exact(toy, scenario):
    outcome = judge(toy, ContinuousBatching, scenario)
    assert outcome.verdict is Verdict.EXACT
    assert outcome.findings == ()
    assert outcome.numbers == Numbers(0.0, outcome.numbers.noise, 0.0)


def test_an_engine_that_shows_little_is_exact_on_what_it_can_express(toy):
    found = verdicts(toy, AllAtOnce)
    assert set(found.values()) == {Verdict.EXACT}
    assert {"ragged", "chunked", "slot_reuse", "prompt_cache", "threads"} < set(found)
    assert not {"staggered", "cancelled", "samplers", "invalid"} & set(found)


def first_to_see(where):
    """The place on the ladder of the first of these scenarios."""
    return min(index for index, scenario in enumerate(BATCHED) if scenario.name in where)


def seen(toy, engine, scenarios):
    """The verdicts of these, each played until the engine's wrongness shows."""
    verdict, _ = EXPECTED[engine.__name__]
    return verdicts(
        *(toy, engine, scenarios),
        until=lambda findings: any(finding.verdict is verdict for finding in findings),
    )


@pytest.mark.parametrize("engine", WRONG, ids=lambda e: e.__name__)
def test_a_wrong_engine_gets_its_verdict_where_its_wrongness_can_show(toy, engine):
    verdict, where = EXPECTED[engine.__name__]
    first = first_to_see(where)
    assert set(seen(toy, engine, BATCHED[first : first + 1]).values()) == {verdict}


@pytest.mark.nightly
@pytest.mark.parametrize("engine", WRONG, ids=lambda e: e.__name__)
def test_a_wrong_engine_gets_its_verdict_there_alone(toy, engine):
    verdict, where = EXPECTED[engine.__name__]
    found = seen(toy, engine, [s for s in BATCHED if s.name in where])
    assert found == dict.fromkeys(where, verdict)
    others = [s for s in BATCHED if s.name not in where]
    assert set(verdicts(toy, engine, others).values()) <= {Verdict.EXACT}


@pytest.mark.parametrize(
    "engine",
    [
        pytest.param(
            e,
            id=e.__name__,
            marks=[pytest.mark.nightly] * (e.__name__ not in BY_DAY.values()),
        )
        for e in WRONG
    ],
)
def test_a_workload_sees_whatever_it_has_the_ingredients_for(toy, engine):
    # Each is played until it sees something, and the next ones only if it does not.
    seen = any(
        not judge(toy, engine, workload, until=until_bad).verdict.good
        for workload in WORKLOADS
        if workload.needs <= engine.capabilities
    )
    assert seen == (engine.__name__ not in NOT_IN_WORKLOADS)


@pytest.mark.parametrize("engine", FAKES, ids=lambda e: e.__name__)
def test_a_fake_is_vacuous_where_it_leaves_out_what_is_tested(toy, engine):
    vacuous = VACUOUS[engine.__name__]
    left_out = [s for s in BATCHED if s.name in vacuous]
    assert verdicts(toy, engine, left_out) == dict.fromkeys(vacuous, Verdict.VACUOUS)


@pytest.mark.nightly
@pytest.mark.parametrize("engine", FAKES, ids=lambda e: e.__name__)
def test_a_fake_is_exact_in_all_others(toy, engine):
    others = [s for s in BATCHED if s.name not in VACUOUS[engine.__name__]]
    assert set(verdicts(toy, engine, others).values()) <= {Verdict.EXACT}


@pytest.mark.parametrize("engine", FAKES, ids=lambda e: e.__name__)
def test_a_fake_costs_more_where_it_wastes(toy, engine):
    wasted = WASTED.get(engine.__name__, {})
    counted = [s for s in COUNTED if s.name != LASTING or s.name in wasted]
    exact = {scenario.name: Verdict.EXACT for scenario in counted}
    assert verdicts(toy, engine, counted) == exact | wasted


def test_every_scenario_can_be_vacuous():
    assert set().union(*VACUOUS.values()) == ALL
    hidden = {n for w in WASTED.values() for n, v in w.items() if v is Verdict.VACUOUS}
    assert hidden == {scenario.name for scenario in COUNTED}


def test_every_scenario_is_the_first_of_the_ladder_to_see_some_wrongness():
    order = [scenario.name for scenario in BATCHED]
    first = {min(where, key=order.index) for _, where in EXPECTED.values()}
    assert set(order) - first == set()


def test_other_rounding_is_exact_where_no_token_hangs_on_it(toy):
    assert set(verdicts(toy, RoundsOtherwise).values()) == {Verdict.EXACT}


def test_other_rounding_is_a_tie_where_a_token_hangs_on_it():
    found = verdicts(subject(TiedLibrary()), RoundsOtherwise)
    assert found == {name: Verdict.TIE if name in SEVERAL else Verdict.EXACT for name in ALL}


def test_a_window_of_the_family_is_used_in_place_of_a_bound():
    windowed = subject(window=6)
    scenario = next(s for s in BATCHED if s.name == "window")
    schedules = scenario.make(brief_for(windowed, ContinuousBatching, 0))
    assert {s.options.max_kv_size for s in schedules} == {None}
    assert judge(windowed, ContinuousBatching, scenario).verdict is Verdict.EXACT


def test_the_first_schedule_is_played_once_where_that_suffices(toy):
    ragged = next(s for s in BATCHED if s.name == "ragged")
    made = ragged.make(brief_for(toy, ContinuousBatching, 0))
    outcome = judge_batched(toy, ContinuousBatching, ragged, made, twice=False)
    assert outcome.verdict is Verdict.EXACT
    assert outcome.schedules[0].forward_calls == 1 + 5
    broken = next(e for e in WRONG if e.__name__ == "NanInPadding")
    made = ragged.make(brief_for(toy, broken, 0))
    once, twice = (judge_batched(toy, broken, ragged, made, twice=t) for t in (False, True))
    assert [s.verdict for s in once.schedules] == [s.verdict for s in twice.schedules]


def test_each_schedule_has_the_verdict_of_its_own_findings(toy):
    ragged = next(s for s in BATCHED if s.name == "ragged")
    broken = next(e for e in WRONG if e.__name__ == "NanInPadding")
    assert [s.verdict for s in judge(toy, broken, ragged).schedules] == [
        Verdict.NAN,
        Verdict.EXACT,  # a prompt of one token is never prefilled
        Verdict.NAN,
    ]
    cancelled = next(s for s in BATCHED if s.name == "cancelled")
    leaky = next(e for e in WRONG if e.__name__ == "KeepsCache")
    by_name = {s.name: s.verdict for s in judge(toy, leaky, cancelled).schedules}
    assert by_name["prefill"] is Verdict.LEAK
    assert by_name["decode"] is Verdict.EXACT


def test_a_case_that_is_unsupported_is_not_vacuous_too(toy):
    window = next(s for s in BATCHED if s.name == "window")
    found = judge(toy, SaysUnsupported, window)
    assert {f.verdict for f in found.findings} == {Verdict.UNSUPPORTED}


def failing(toy, monkeypatch, *names):
    """The subject, whose single stream fails in these schedules."""
    solo = toy.oracle.solo

    def fail(request, options, schedule):
        if schedule is not None and (not names or schedule.name in names):
            raise IndexError("list index out of range")
        return solo(request, options, schedule)

    monkeypatch.setattr(toy.oracle, "solo", fail)
    return toy


def ragged_schedules(toy):
    ragged = next(s for s in BATCHED if s.name == "ragged")
    return ragged, ragged.make(brief_for(toy, ContinuousBatching, 0))


def test_a_schedule_without_a_single_stream_does_not_take_the_others(toy, monkeypatch):
    ragged, made = ragged_schedules(toy)
    broken = failing(toy, monkeypatch, made[0].name)
    outcome = judge_batched(broken, ContinuousBatching, ragged, made)
    assert [s.verdict for s in outcome.schedules] == [Verdict.CRASH, Verdict.EXACT, Verdict.EXACT]
    (finding,) = [f for f in outcome.findings if f.verdict is Verdict.CRASH]
    assert finding.schedule == made[0].name
    assert "the single stream raised IndexError" in finding.what


def test_a_case_without_any_single_stream_fails_as_a_whole(toy, monkeypatch):
    ragged, made = ragged_schedules(toy)
    with pytest.raises(IndexError):
        judge_batched(failing(toy, monkeypatch), ContinuousBatching, ragged, made)


def test_a_scenario_without_schedules_is_vacuous(toy):
    ragged = next(s for s in BATCHED if s.name == "ragged")
    empty = Scenario("empty", 1, "nothing", frozenset(), lambda brief: [], ragged.witnesses)
    outcome = judge(toy, ContinuousBatching, empty)
    assert outcome.verdict is Verdict.VACUOUS
    assert [f.expected for f in outcome.findings] == [w.name for w in ragged.witnesses]
    assert outcome.numbers is None


def test_a_doubtful_oracle_is_reported_and_judges_nothing():
    """The library is off by one without a batch, and an engine that is off alike is exact."""
    doubtful = subject(ForgetfulLibrary())
    judge_oracle(doubtful, REPEAT.make(brief_for(doubtful, JoinsOneOff, 0)))
    scenario = next(s for s in BATCHED if s.name == "batch_of_one")
    outcome = judge(doubtful, OffByOne, scenario)
    assert outcome.verdict is Verdict.EXACT
    assert [f.check for f in outcome.findings] == ["oracle"]


class OffByOne(ContinuousBatching):
    """Wrong as its library is."""

    def offsets(self, rows):
        return [len(row.fed) + 1 for row in rows]


def test_the_numbers_of_a_drift_are_its_difference_over_its_noise(toy):
    numbers = judge(toy, DriftsALittle, next(s for s in BATCHED if s.name == "identical")).numbers
    assert numbers.difference == pytest.approx(1e-3, rel=0.01)
    assert numbers.ratio > 100
    assert np.isfinite(numbers.noise)


def test_a_case_ends_with_the_first_run_whose_findings_are_enough(toy):
    (ragged,) = (scenario for scenario in BATCHED if scenario.name == "ragged")
    schedules = ragged.make(brief_for(toy, NanInPadding, 0))
    before = toy.library.churns
    outcome = judge_batched(toy, NanInPadding, ragged, schedules, until=until_bad)
    assert toy.library.churns == before + 1
    assert [result.name for result in outcome.schedules] == [schedules[0].name]
    assert outcome.verdict is Verdict.NAN


# A single stream that fails in pieces is replaced by that of the whole prompt, and said -----------


class WholePrompts(ToyLibrary):
    """Its single stream takes no prompt in pieces."""

    def single_stream(self, model, request, *, options, **more):
        if len(request.prompt) - 1 > options.prefill_step_size:
            raise ValueError("no pieces, please")
        return super().single_stream(model, request, options=options, **more)


class NoPrompts(ToyLibrary):
    """Its single stream takes no long prompt at all."""

    def single_stream(self, model, request, **more):
        if len(request.prompt) > 2:
            raise ValueError("no prompts, please")
        return super().single_stream(model, request, **more)


def in_pieces(toy, size=4):
    brief = brief_for(toy, ContinuousBatching, 0)
    rows = together(text_request(brief, "a", 5), text_request(brief, "b", 11))
    options = EngineOptions(prefill_step_size=size)
    return Schedule("pieces", (rows,), options=options)


def judged(library, engine, size=4):
    toy = subject(library)
    chunked = next(scenario for scenario in LADDER if scenario.name == "chunked")
    return judge_batched(toy, engine, chunked, [in_pieces(toy, size)])


def test_a_right_batch_has_the_failure_of_its_single_stream_alone():
    found = judged(WholePrompts(), ContinuousBatching)
    (finding,) = [f for f in found.findings if f.verdict is not Verdict.VACUOUS]
    assert finding.verdict is Verdict.ORACLE
    assert finding.got == "ValueError: no pieces, please"
    assert finding.what.endswith("compared with single streams of whole prompts")
    assert [s.verdict for s in found.schedules] == [Verdict.ORACLE]


def test_a_wrong_batch_is_seen_beside_it():
    found = judged(WholePrompts(), DriftsALittle)
    assert {Verdict.ORACLE, Verdict.DRIFT} <= {f.verdict for f in found.findings}


def test_whole_prompts_that_fail_too_are_what_they_were():
    with pytest.raises(ValueError, match="no prompts, please"):
        judged(NoPrompts(), ContinuousBatching)


def test_nothing_is_tried_again_where_no_prompt_is_cut():
    asked = []

    def play(uncut):
        asked.append(uncut)
        raise ValueError("broken")

    whole = in_pieces(subject(), size=10)
    assert attempt(whole, play).finding.verdict is Verdict.CRASH
    assert asked == [False]
    shorter = msgspec.structs.replace(whole, options=EngineOptions(prefill_step_size=9))
    attempt(shorter, play)
    assert asked == [False, False, True]


def test_the_machines_own_problems_are_no_verdict():
    def play(uncut):
        raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space left"):
        attempt(in_pieces(subject()), play)


def findings(toy, rules):
    """Those about an engine that keeps blocks of four tokens at once, whatever it declares."""

    class Declares(KeepsPrefixes):
        prefix_reuse = rules

    made = PREFIX_CACHING.make(brief_for(toy, Declares, 0))
    return judge_batched(toy, Declares, PREFIX_CACHING, made).findings


@pytest.mark.parametrize(
    ("rules", "what"),
    [
        (PrefixReuse(smallest=20), "reused 16 tokens of the prompt, fewer than the smallest"),
        (PrefixReuse(block_size=16), "reused 20 tokens of the prompt, no whole blocks of 16"),
        (PrefixReuse(on_completion=True), "of which requests that had ended hold 0"),
    ],
)
def test_a_declaration_that_is_not_kept_breaks_the_protocol(toy, rules, what):
    found = [f for f in findings(toy, rules) if f.check == "protocol"]
    assert {finding.verdict for finding in found} == {Verdict.PROTOCOL}
    assert any(what in finding.what for finding in found)
    assert all(f"PrefixReuse({rules})" in finding.expected for finding in found)


def test_a_declaration_that_is_kept_is_fine(toy):
    assert findings(toy, PrefixReuse(smallest=4, block_size=2)) == ()


# Engines with a fixed number of slots -------------------------------------------------------------


def of_slots(engine, scenario=SLOT_REUSE):
    session = toy_session({"slots": engine})
    return session.run(CaseId("slots", "calm", scenario.name, "float32", 0))


@pytest.mark.parametrize(
    ("engine", "what"),
    [
        (MovesRows, "r1 was in slot 1 and is in slot 0"),
        (SharesSlots, "r0 and r1 are in slot 0"),
        (CountsFromFour, "r0 is in slot 4, of 4"),
        (NamesNoSlots, "`rows()` never says which of the 4 slots a request is in"),
    ],
)
def test_a_request_that_does_not_keep_a_slot_breaks_the_protocol(engine, what):
    found = of_slots(engine)
    assert found.verdict is Verdict.PROTOCOL
    assert what in {finding.what for finding in found.evidence}


def test_a_right_engine_with_slots_is_right_and_a_wrong_one_is_not():
    assert of_slots(FixedSlots).verdict is Verdict.EXACT
    assert of_slots(KeepsSlotsCache).verdict is Verdict.DIVERGED
    assert of_slots(NoSlots).verdict is Verdict.CRASH


@pytest.mark.parametrize(
    "scenario", ["early_finish", "cancelled", "wide", "traffic", "traffic_quantized"]
)
def test_no_more_rows_are_wanted_than_there_are_slots(scenario):
    session = toy_session({"slots": FixedSlots})
    found = session.run(CaseId("slots", "calm", scenario, "float32", 0))
    assert found.verdict.good, found.evidence
    assert "the engine declares 4 slots" in {witness.excused for witness in found.witnesses}


def test_what_waits_for_a_slot_continues_from_what_was_there_when_it_arrived():
    """Nothing of the toy engine is kept between requests: the workload is vacuous in that alone."""
    session = toy_session({"slots": FixedSlots})
    found = session.run(CaseId("slots", "calm", "traffic_kept", "float32", 0))
    assert all(schedule.verdict.good for schedule in found.schedules)
