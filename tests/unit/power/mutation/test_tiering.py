"""The choice of tiers: cheap, nothing is lost; newer faults extend it by the fewest schedules."""

from results_by_hand import make_result

from conformance.core.family import Facts, Family
from conformance.core.verdict import ScheduleResult, Verdict
from conformance.power.mutation.kills import Kills, killed_in, kills_of
from conformance.power.mutation.tiering import choose, cross_validated, extended, schedule_names
from conformance.report.trials import Kill, Outcome, Trial
from conformance.run.tiers import Choice, Tier

FAMILIES = {
    "lib/llama": Family("llama", Facts(library="lib", quick=True), {"vocab_size": 8}),
    "lib/gemma": Family("gemma", Facts(library="lib"), {"vocab_size": 8}),
}
SECONDS = {
    "repeat": {"one": 4.0},
    "rechunked": {"one": 2.0},
    "ragged": {"cheap": 1.0, "dear": 9.0},
    "mixed_modality": {"image_alone": 1.0, "image_beside": 5.0},
    "invalid": {"sizes": 2.0, "uid": 2.0},
}


def results():
    for name in ("llama", "gemma"):
        for scenario, parts in SECONDS.items():
            schedules = tuple(ScheduleResult(s, Verdict.EXACT, seconds=t) for s, t in parts.items())
            yield make_result(
                f"lib/{name}/{scenario}/float32/0",
                schedules=schedules,
                seconds=sum(parts.values()),
            )


def trial(fault, places):
    """A fault that these ``scenario/schedule`` places catch in llama."""
    pairs = [place.split("/") for place in places]
    kills = tuple(
        Kill(scenario, "diverged", ("free",), schedules=tuple(s for p, s in pairs if p == scenario))
        for scenario in dict.fromkeys(p for p, _ in pairs)
    )
    killed = Outcome.KILLED
    return Trial(fault, "x", "lib", "llama", "float32", 0, killed, kills, complete=True)


def chosen(**faults):
    """The choice where each fault is caught by these places."""
    trials = [trial(name, places) for name, places in faults.items()]
    kills = kills_of(trials, {"lib": "lib"})
    return choose("lib", results(), kills, FAMILIES, ("repeat", "rechunked"))


def test_the_cheapest_schedule_that_catches_a_fault_is_kept():
    default = chosen(A=["ragged/cheap", "ragged/dear"])["default"]
    assert default.left_out["ragged"] == ("dear",)
    assert (default.killed, default.of) == (1, 1)


def test_the_only_one_that_catches_a_fault_is_kept_whatever_it_costs():
    default = chosen(A=["ragged/cheap"], B=["ragged/dear"])["default"]
    assert "ragged" not in default.left_out


def test_a_rung_that_catches_nothing_keeps_its_cheapest_schedule_in_the_default_tier_alone():
    found = chosen(A=["ragged/cheap"])
    assert found["default"].left_out["mixed_modality"] == ("*_beside",)
    assert found["quick"].left_out["mixed_modality"] == ("*",)


def test_a_fault_that_a_rung_about_the_model_catches_is_not_left_to_one_about_the_engine():
    found = chosen(A=["ragged/dear", "invalid/sizes"])
    assert "dear" not in found["quick"].left_out["ragged"]


def test_what_only_the_engine_shows_stays_in_the_quick_tier():
    found = chosen(A=["invalid/uid"])
    assert found["quick"].left_out["invalid"] == ("sizes",)
    assert "invalid" not in found["default"].left_out


def test_the_first_rung_without_an_engine_is_always_played():
    quick = chosen(A=["ragged/cheap"])["quick"]
    assert "repeat" not in quick.left_out
    assert quick.left_out["rechunked"] == ("*",)


def test_the_share_is_of_the_time_that_is_played():
    default = chosen(A=["ragged/cheap"])["default"]
    whole = 2 * (4 + 2 + 10 + 6 + 4)
    assert default.share == round((2 * (4 + 2 + 1 + 1) + 4) / whole, 3)


NAMES = {
    "ragged": frozenset({"short", "long", "image_late", "image_early"}),
    "wide": frozenset({"of_2", "of_3"}),
}
KILLS = Kills(
    ("ragged/short", "ragged/long", "wide/of_2", "ragged/image_late"),
    {"lib/llama": {"A1": (0,), "A2": (1, 2), "A3": (1,), "A4": (2,), "A5": (3,)}},
)


def choice(**left_out):
    return Choice(1, 1, 0.25, left_out, {"wide": ("of_2",)})


def family(*, quick):
    return Family("llama", Facts(library="lib", quick=quick), {"vocab_size": 8})


def extend(before, *, rate=1.0, quick=True):
    families = {"lib/llama": family(quick=quick)}
    return extended("t", "lib", before, KILLS, names=NAMES, families=families, rate=rate)


def test_a_scenario_that_is_left_out_gets_back_only_what_catches_something():
    found = extend(choice(ragged=("*",)))
    assert found.left_out == {"ragged": ("image_early",)}
    assert (found.killed, found.of, found.share) == (5, 5, 0.25)


def test_a_glob_over_kinds_of_media_leaves_the_others_out():
    found = extend(choice(ragged=("image_*", "short")))
    assert found.left_out == {"ragged": ("image_early",)}


def test_what_catches_most_comes_first_and_a_rate_is_enough():
    found = extend(choice(ragged=("*",), wide=("*",)), rate=0.6)
    assert found.left_out["ragged"] == ("image_early", "short")
    assert found.left_out["wide"] == ("*",)
    assert (found.killed, found.of) == (3, 5)


def test_a_choice_that_catches_all_is_left_as_it_is():
    before = choice(wide=("of_3",))
    assert extend(before).left_out == before.left_out


def test_a_family_that_represents_no_kind_asks_for_nothing_that_it_does_not_play():
    found = extend(choice(wide=("of_2",)), quick=False)
    assert found.left_out == {"wide": ("of_2",)}
    assert (found.killed, found.of) == (4, 5)
    caught = killed_in(KILLS, Tier("t", {"lib": found}), {"lib/llama": family(quick=False)})
    assert "A4" not in caught["lib/llama"]


def test_names_are_those_played_and_those_left_out_of_the_library_s_own_engine():
    played = (ScheduleResult("ragged", Verdict.EXACT),)
    results = [
        make_result("mlx_lm/llama/ragged/float32/0", schedules=played, left_out=("other",)),
        make_result("mlx_vlm/llava/ragged/float32/0", schedules=played, left_out=("its",)),
    ]
    assert schedule_names("mlx_lm", results) == {"ragged": frozenset({"ragged", "other"})}


def test_a_tier_is_scored_by_faults_that_it_was_not_chosen_by():
    """What one schedule catches is caught unseen; what has a schedule of its own is not."""
    alike = {f"A{n}": ["ragged/cheap"] for n in range(8)}
    apart = {f"B{n}": [f"ragged/own_{n}"] for n in range(8)}
    for faults, wanted in ((alike, 1.0), (apart, 0.0)):
        kills = kills_of([trial(name, places) for name, places in faults.items()], {"lib": "lib"})
        for killed, of in cross_validated("lib", kills, FAMILIES).values():
            assert of == 5 * 4
            assert killed == wanted * of


def test_a_fault_that_was_not_tried_elsewhere_is_in_no_score():
    assert cross_validated("lib", Kills((), {}), FAMILIES) == {}
