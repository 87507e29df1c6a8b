"""Faults are detected by the scenarios that should catch them, or they survive."""

import contextlib

import msgspec
import pytest
from miniatures.library import ToyLibrary
from miniatures.model import VOCAB
from miniatures.right import ContinuousBatching
from miniatures.wrong import CrashesOnJoin, LosesFirstToken
from results_by_hand import make_result

from conformance.core.errors import ModelError, Unsupported
from conformance.core.family import Facts, Family
from conformance.core.faults import Fault, Hits, replace
from conformance.core.library import Description
from conformance.core.verdict import CaseId, Finding, ScheduleResult, Verdict, encode
from conformance.power.mutation.kills import Kills
from conformance.power.mutation.power import (
    Attempt,
    Unit,
    _signal,
    crashed,
    enough,
    halves,
    trials,
    undetected,
    without,
)
from conformance.report.trials import Outcome
from conformance.run.registry import Registry
from conformance.run.session import Session
from conformance.scenarios import LADDER


class Described(ToyLibrary):
    """Describes what its models are made of; cannot load one family."""

    def describe(self, model):
        return Description(("ToyCache",), "RoPE")

    def load(self, family, *, dtype, seed):
        if family.name == "torn":
            raise ModelError("weights are missing")
        self.refuses = family.name == "beyond"
        return super().load(family, dtype=dtype, seed=seed)

    def single_stream(self, model, request, **options):
        if self.refuses:
            raise Unsupported("GatherMM currently only supports float32")
        return super().single_stream(model, request, **options)


class Switched(ContinuousBatching):
    """Right, as long as no other engine is put in its place."""

    name = "right"
    other = None

    def __new__(cls, model, options):
        if cls.other is None:
            return super().__new__(cls)
        return cls.other(model, options)


def like(wrong):
    """Puts a wrong engine in the place of the right one."""

    @contextlib.contextmanager
    def inject(hits):
        hits.hit()
        with replace(Switched, "other", wrong):
            yield

    return inject


def silent(hits):
    return contextlib.nullcontext()


@contextlib.contextmanager
def harmless(hits):
    hits.hit()
    yield


def fault(name, inject, *, kills=("staggered",), needs=(), crash=False):
    about = {"fault_class": "tokens", "source": "here", "summary": "wrong", "engine": "right"}
    return Fault(name=name, needs=needs, kills=kills, inject=inject, crash=crash, **about)


FAULTS = (
    fault("loses", like(LosesFirstToken), kills=("batch_of_one", "staggered", "cancelled")),
    fault("at-once", like(LosesFirstToken)),
    fault("crashes", like(CrashesOnJoin)),
    fault("crashed", like(CrashesOnJoin), crash=True),
    fault("survives", harmless),
    fault("idle", silent),
    fault("elsewhere", harmless, needs=("cache:Toy*", "modality:image|window")),
    fault("nowhere", harmless, kills=("speculative",)),
)


@pytest.fixture(scope="module")
def registry():
    return registry_of(LADDER)


@pytest.fixture(scope="module")
def small():
    """A registry of few scenarios, for what runs every one."""
    few = ("batch_of_one", "ragged", "staggered", "early_finish", "cancelled")
    return registry_of(scenario for scenario in LADDER if scenario.name in few)


def registry_of(scenarios):
    families = ("calm", "torn", "beyond")
    return Registry(
        libraries={"toy": Described()},
        families={
            ("toy", n): Family(n, Facts(library="toy"), {"vocab_size": VOCAB}) for n in families
        },
        engines={"right": Switched},
        scenarios={scenario.name: scenario for scenario in scenarios},
        faults={fault.key: fault for fault in FAULTS},
        plugins=(),
    )


def tried(registry, *names, **options):
    keys = tuple(f"right/{name}" for name in names)
    unit = Unit("right", options.pop("family", "calm"), "float32", 0, keys, **options)
    return trials(registry, unit)


def test_a_fault_is_killed_by_the_first_scenario_that_detects_it(registry):
    (trial,) = tried(registry, "loses")
    assert trial.outcome is Outcome.KILLED
    assert [kill.scenario for kill in trial.kills] == ["staggered"]
    assert trial.tried == ("batch_of_one", "staggered")
    assert trial.kills[0].verdict == "protocol"
    assert "protocol" in trial.kills[0].checks
    assert trial.hits > 0


def test_the_case_is_left_as_soon_as_the_fault_is_reported(registry):
    (trial,) = tried(registry, "at-once")
    assert (trial.outcome, trial.hits) == (Outcome.KILLED, 1)  # it is put in once a run


def test_the_engine_is_right_again_afterwards(registry):
    tried(registry, "loses")
    assert Switched.other is None


def test_a_crash_kills_only_what_was_a_crash(registry):
    crashes, crashed = tried(registry, "crashes", "crashed")
    assert crashes.outcome is Outcome.SURVIVED
    assert crashed.outcome is Outcome.KILLED


def test_what_shows_nothing_survives(registry):
    (trial,) = tried(registry, "survives")
    assert trial.outcome is Outcome.SURVIVED
    assert not trial.kills


def test_what_never_took_effect_is_not_applicable(registry):
    (trial,) = tried(registry, "idle")
    assert trial.outcome is Outcome.NOT_APPLICABLE
    assert trial.why == "never took effect in staggered"


def test_what_the_family_lacks_is_not_applicable(registry):
    (trial,) = tried(registry, "elsewhere")
    assert trial.outcome is Outcome.NOT_APPLICABLE
    assert trial.why == "the family has no modality:image|window"
    assert trial.tried == ()


def test_what_the_engine_cannot_express_is_not_applicable(registry):
    (trial,) = tried(registry, "nowhere")
    assert trial.why == "no scenario applies"


def test_every_scenario_can_be_run(small):
    (trial,) = tried(small, "loses", every_scenario=True)
    assert len(trial.kills) > 1
    assert len(trial.tried) > len(trial.kills)
    assert sorted(trial.tried) == sorted(small.scenarios)
    assert trial.complete


def test_a_family_that_cannot_be_loaded_has_no_applicable_fault(registry):
    (trial,) = tried(registry, "loses", family="torn")
    assert trial.outcome is Outcome.NOT_APPLICABLE
    assert trial.why == "the family can't be loaded here: weights are missing"


def test_what_the_library_cannot_run_is_not_applicable(registry):
    loses, crashed = tried(registry, "loses", "crashed", family="beyond")
    assert {loses.outcome, crashed.outcome} == {Outcome.NOT_APPLICABLE}
    assert "GatherMM currently only supports float32" in loses.why
    assert loses.hits == 0


def test_a_faint_number_is_not_enough_to_stop_at(registry):
    right = Session(registry).run(CaseId("right", "calm", "ragged", "float32", 0))
    fault = registry.faults["right/loses"]
    assert not enough(fault, right, [finding(50.0)])
    assert enough(fault, right, [finding(50.0), finding(500.0)])
    assert enough(fault, right, [finding(None)])  # without a number
    assert not enough(fault, right, [])


def test_a_trial_as_a_line(registry):
    unit = Unit("right", "calm", "float32", 0, ("right/loses",))
    (trial,) = without(registry, unit, "its process crashed")
    line = encode(trial)
    assert '"outcome":"not applicable"' in line
    assert '"why":"its process crashed"' in line


def finding(ratio):
    return Finding(Verdict.DRIFT, "forced", "off", ratio=ratio)


def test_the_signal_is_the_largest_ratio_of_a_number_that_leaves_the_noise():
    assert _signal([finding(50.0), finding(7.0), finding(None)]) == 50.0


def test_what_is_within_noise_or_not_finite_is_no_signal():
    assert _signal([finding(1.5), finding(None)]) is None
    assert _signal([finding(50.0), finding(float("inf"))]) is None
    assert _signal([]) is None


def test_a_trial_knows_the_noise_of_its_right_runs_and_whether_it_is_complete(registry):
    (trial,) = tried(registry, "at-once")
    assert trial.noise == 0.0
    assert not trial.complete


def test_a_unit_is_halved_until_one_fault_is_left():
    unit = Unit("right", "calm", "float32", 0, ("a", "b", "c"))
    assert [half.faults for half in halves(unit)] == [("a",), ("b", "c")]
    assert halves(halves(unit)[0]) == ()


def test_a_fault_that_ends_its_process_survives(registry):
    (trial,) = crashed(registry, Unit("right", "calm", "float32", 0, ("right/crashed",)))
    assert (trial.outcome, trial.why) == (Outcome.SURVIVED, "its process crashed")


def right_run(*schedules, evidence=()):
    result = make_result(
        "right/calm/staggered/float32/0",
        max(schedules, key=lambda verdict: verdict.severity),
        evidence=evidence,
        schedules=tuple(ScheduleResult(f"s{i}", v) for i, v in enumerate(schedules)),
    )
    return {"staggered": result}


def test_a_fault_is_detectable_if_it_took_effect_in_a_schedule_that_is_right_without_it():
    of_both = right_run(Verdict.EXACT, Verdict.DIVERGED)
    right, wrong = "staggered/s0", "staggered/s1"
    for hits in ({right: Hits(1)}, {right: Hits(1), wrong: Hits(1)}):
        assert undetected(("staggered",), Attempt(hits, of_both)) == (Outcome.SURVIVED, "")
    hidden = (Outcome.HIDDEN, f"the family is wrong without it, too, in {wrong}")
    for hits in ({wrong: Hits(1)}, {right: Hits(0), wrong: Hits(1)}):
        assert undetected(("staggered",), Attempt(hits, of_both)) == hidden
    idle = (Outcome.NOT_APPLICABLE, "never took effect in staggered")
    assert undetected(("staggered",), Attempt({right: Hits(0)}, of_both)) == idle


def test_a_crash_that_the_family_knows_hides_a_fault():
    crash = Finding(Verdict.CRASH, "failure", "raised", schedule="s1", got="ValueError: shapes")
    before = right_run(Verdict.EXACT, Verdict.CRASH, evidence=(crash,))
    hits = {"staggered/s0": Hits(1)}

    def outcome(finding):
        with_fault = msgspec.structs.replace(before["staggered"], evidence=(finding,))
        return undetected(("staggered",), Attempt(hits, before, [with_fault]))[0]

    led = msgspec.structs.replace(crash, schedule="s0")
    assert outcome(led) is Outcome.HIDDEN
    assert outcome(msgspec.structs.replace(led, got="TypeError: another")) is Outcome.SURVIVED


def recorded(monkeypatch, name, place):
    """The record of the tiers says that this place catches the fault in the family ``calm``."""
    kills = Kills((place,), {"toy/calm": {name: (0,)}})
    monkeypatch.setattr("conformance.power.mutation.power.read_kills", lambda: kills)


def test_the_schedule_that_caught_a_fault_before_is_played_alone(registry, monkeypatch):
    recorded(monkeypatch, "loses", "staggered/long_into_short")
    (trial,) = tried(registry, "loses")
    assert (trial.outcome, trial.tried) == (Outcome.KILLED, ("staggered",))
    assert [kill.schedules for kill in trial.kills] == [("long_into_short",)]
    assert trial.hits == 1


def test_a_schedule_that_catches_a_fault_no_more_is_not_the_last_word(registry, monkeypatch):
    recorded(monkeypatch, "loses", "batch_of_one/batch_of_one")
    (trial,) = tried(registry, "loses")
    assert (trial.outcome, trial.tried) == (Outcome.KILLED, ("batch_of_one", "staggered"))


@pytest.mark.parametrize("place", ["structured/joins", "cancelled/gone"])
def test_a_record_of_another_time_is_passed_over(registry, monkeypatch, place):
    recorded(monkeypatch, "loses", place)
    (trial,) = tried(registry, "loses")
    assert (trial.outcome, trial.tried) == (Outcome.KILLED, ("batch_of_one", "staggered"))


def test_with_every_scenario_the_record_is_not_asked(small, monkeypatch):
    recorded(monkeypatch, "loses", "cancelled/decode")
    (trial,) = tried(small, "loses", every_scenario=True)
    assert sorted(trial.tried) == sorted(small.scenarios)
