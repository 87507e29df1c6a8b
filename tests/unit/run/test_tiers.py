"""What a tier plays, and what it does with what its data does not know."""

from types import SimpleNamespace

import pytest

from conformance.core.errors import ConformanceError
from conformance.core.family import Facts, Family
from conformance.core.names import QUICK, TIERS
from conformance.core.representatives import representatives
from conformance.run.tiers import COSTLY, WHOLE, Choice, Tier, read_tiers, tier
from conformance.scenarios.served import SERVED_SCENARIOS

CHOICE = Choice(
    killed=9,
    of=9,
    share=0.5,
    left_out={"ragged": ("long_*",), "wide": ("*",)},
    of_kinds={"invalid": ("*",), "quantized": ("*turbo*",)},
)
TIER = Tier("default", {"toy": CHOICE})


def family(*, library="toy", quick=False):
    return Family("llama", Facts(library=library, quick=quick), {"vocab_size": 8})


def kept(scenario, *names, **more):
    schedules = [SimpleNamespace(name=name) for name in names]
    return [s.name for s in TIER.kept(family(**more), scenario, schedules)]


def test_schedules_that_are_left_out_are_not_played():
    assert kept("ragged", "long_first", "short_first") == ["short_first"]


def test_a_schedule_and_a_scenario_that_the_data_does_not_know_are_played():
    assert kept("ragged", "new", "short_first") == ["new", "short_first"]
    assert kept("brand_new", "long_first") == ["long_first"]
    assert TIER.plays(family(), "brand_new")


def test_what_tests_the_engine_is_played_by_families_that_represent_a_kind():
    assert not TIER.plays(family(), "invalid")
    assert TIER.plays(family(quick=True), "invalid")
    assert kept("quantized", "turbo", "uniform") == ["uniform"]
    assert kept("quantized", "turbo", "uniform", quick=True) == ["turbo", "uniform"]


def test_families_that_represent_a_kind_play_each_rung_twice_and_the_others_one():
    assert [TIER.twice(family(), name) for name in ("ragged", "chunked")] == [True, False]
    assert TIER.twice(family(quick=True), "chunked")
    assert WHOLE.twice(family(), "chunked")


def test_an_unknown_tier_is_refused():
    with pytest.raises(ConformanceError, match="no tier 'slow'; there are quick, default, full"):
        tier("slow")


def test_the_data_has_each_tier_but_the_full_one_and_leaves_less_out_of_the_default():
    data = read_tiers()
    assert {*data.tiers, "full"} == set(TIERS)
    for library, choice in data.tiers["default"].items():
        quick = data.tiers[QUICK][library]
        assert quick.share < choice.share < 1
        assert not [name for name, globs in choice.left_out.items() if "*" in globs]


def test_costly_tests_of_the_engine_have_one_family_of_each_library_below_the_full_tier():
    one, other = (
        Family(name, Facts(library="mlx_lm", quick=True), {}) for name in ("llama", "mamba2")
    )
    for scenario in sorted(COSTLY):
        assert tier("default").plays(one, scenario)
        assert not tier("default").plays(other, scenario)
        assert not tier(QUICK).plays(one, scenario)
        assert WHOLE.plays(other, scenario)


def test_servers_play_one_family_of_each_kind():
    served = representatives()
    names = {scenario.name for scenario in SERVED_SCENARIOS}
    assert set(served.served_by_first["scenarios"]) < names
    assert sum(map(len, served.served.values())) >= 6
    some = Tier("default")
    for library, chosen in served.served.items():
        first, *others = [Family(name, Facts(library=library), {}) for name in chosen]
        left = {name for name in names if not some.plays(first, name)}
        assert left <= {"served_quantized"}  # whose families have wide heads
        assert some.plays(others[0], "served_alone")
        assert not some.plays(others[0], "served_flood")
        unknown = Family("another", Facts(library=library), {})
        assert not some.plays(unknown, "served_alone")
        assert WHOLE.plays(unknown, "served_flood")
