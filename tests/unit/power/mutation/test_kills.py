"""Which schedules catch which fault: from trials, and under a tier."""

import msgspec

from conformance.core.family import Facts, Family
from conformance.core.names import DEFAULT, QUICK
from conformance.power.mutation.kills import Place, killed_in, kills_of, read_kills, with_more
from conformance.report.trials import Kill, Outcome, Trial
from conformance.run.registry import build_registry
from conformance.run.tiers import WHOLE, Choice, Tier, read_tiers

FAMILY = Family("llama", Facts(library="lib"), {"vocab_size": 8})


def trial(fault, *kills, complete=True):
    outcome = Outcome.KILLED if kills else Outcome.SURVIVED
    return Trial(
        fault, "x", "engine", "llama", "float32", 0, outcome, tuple(kills), complete=complete
    )


def kill(scenario, *schedules):
    return Kill(scenario, "diverged", ("free",), schedules=schedules)


KILLS = kills_of(
    [
        trial("A1", kill("ragged", "short", "long"), kill("wide", "of_2")),
        trial("A2", kill("wide", "of_2")),
        trial("A3"),
        trial("A4", kill("ragged", "short"), complete=False),
    ],
    {"engine": "lib"},
)


def test_each_place_that_catches_a_fault_is_kept():
    found = KILLS.of("lib/llama")
    assert found["A1"] == {Place("ragged", "short"), Place("ragged", "long"), Place("wide", "of_2")}
    assert found["A2"] == {Place("wide", "of_2")}


def test_survivors_and_trials_that_were_ended_early_are_not_counted():
    assert set(KILLS.caught["lib/llama"]) == {"A1", "A2"}


def test_a_tier_that_leaves_the_only_place_out_loses_the_fault():
    tier = Tier("t", {"lib": Choice(0, 0, 0.0, {"wide": ("of_2",)}, {})})
    assert killed_in(KILLS, WHOLE, {"lib/llama": FAMILY}) == {"lib/llama": {"A1", "A2"}}
    assert killed_in(KILLS, tier, {"lib/llama": FAMILY}) == {"lib/llama": {"A1"}}


def test_the_tiers_catch_what_their_data_says():
    kills, data = read_kills(), read_tiers()
    families = {f"{lib}/{name}": f for (lib, name), f in build_registry().families.items()}
    assert families.keys() >= kills.caught.keys()
    for name, least in ((DEFAULT, 1.0), (QUICK, 0.98)):
        caught = killed_in(kills, Tier(name, data.tiers[name]), families)
        for library, choice in data.tiers[name].items():
            mine = [family for family in caught if family.startswith(f"{library}/")]
            assert sum(len(caught[family]) for family in mine) == choice.killed
            assert sum(len(kills.caught[family]) for family in mine) == choice.of
            assert choice.killed >= least * choice.of


def test_faults_that_are_unknown_are_added_and_others_keep_their_places():
    newer = [trial("A1", kill("wide", "of_3")), trial("A4", kill("wide", "of_3"), complete=False)]
    newer = [msgspec.structs.replace(t, engine="lib") for t in (*newer, trial("A5"))]
    other = trial("A6", kill("wide", "of_3"))
    found = with_more(KILLS, [*newer, other], {"engine": "lib", "lib": "lib"})
    assert found.of("lib/llama") == {
        **KILLS.of("lib/llama"),
        "A4": {Place("wide", "of_3")},
    }
    assert found.places[: len(KILLS.places)] == KILLS.places
