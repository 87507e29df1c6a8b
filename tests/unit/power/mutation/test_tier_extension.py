"""Tiers are extended by the fewest schedules that catch newer faults."""

from results_by_hand import make_result

from conformance.core.family import Facts, Family
from conformance.core.verdict import ScheduleResult, Verdict
from conformance.power.mutation.kills import Kills, killed_in
from conformance.power.mutation.tier_extension import extended, schedule_names
from conformance.run.tiers import Choice, Tier

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
