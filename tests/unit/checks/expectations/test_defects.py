"""The known defects for readers: put together, counted and ranked."""

import dataclasses

import msgspec
import pytest
from defects_by_hand import GROUND, entry, known

from conformance.checks.expectations import load_expectations
from conformance.checks.expectations.defects import groups, known_defects
from conformance.core.known_defect import Severity
from conformance.core.upstream_functions import Place, line_of, source_text
from conformance.core.verdict import Verdict


def order(*entries):
    return [one.id for one in known(*entries)]


def test_a_defect_counts_once_for_each_pair_of_a_family_and_a_scenario_that_apply():
    scenarios = {"ragged": Verdict.DIVERGED, "threads": Verdict.DIVERGED}
    (one,) = known(entry(families=("mamba", "gone"), engines=("mlx_lm*",), verdicts=scenarios))
    assert one.cases == 1
    assert one.families == ("mamba",)
    assert one.scenarios == ("ragged",)


def test_families_that_an_entry_leaves_out_do_not_count():
    (one,) = known(entry(families=("*",), except_families=("mamba",)))
    assert one.families == ("gemma", "llama")


def test_what_reaches_more_families_comes_first():
    assert order(entry("few", 1), entry("many", 2, families=("*",))) == ["many", "few"]


def test_what_shows_in_more_scenarios_comes_first():
    both = {"ragged": Verdict.DIVERGED, "staggered": Verdict.DIVERGED}
    assert order(entry("one", 1), entry("two", 2, verdicts=both)) == ["two", "one"]


@pytest.mark.parametrize(
    ("worse", "better"),
    [("diverged", "crash"), ("crash", "drift"), ("drift", "leak"), ("protocol", "cost")],
)
def test_of_equal_reach_the_worse_comes_first(worse, better):
    a, b = ({"ragged": Verdict(name)} for name in (better, worse))
    assert order(entry("better", 1, verdicts=a), entry("worse", 2, verdicts=b)) == [
        "worse",
        "better",
    ]


@pytest.mark.parametrize(
    "less",
    [
        {"served": False},
        {"engines": ("mlx_lm_batch_generate",)},
        {"device": "gpu (NVIDIA"},
        {"verdicts": {"invalid": Verdict.DIVERGED}},
    ],
    ids=["said", "engine", "device", "misuse"],
)
def test_what_few_meet_counts_half(less):
    (all_of_it,) = known(entry())
    (half,) = known(entry(**less))
    assert half.points == all_of_it.points / 2
    assert half.served is ("served" not in less and "engines" not in less)


def test_entries_of_one_place_are_one_defect_and_the_first_that_explains_it_leads():
    other = entry("behind", why="As lost-state, behind a leak.", verdicts={"held": Verdict.LEAK})
    elsewhere = entry("elsewhere", 2)
    first, second = known(other, entry(), elsewhere)
    assert first.entries == ("elsewhere",)
    assert second.entries == ("lost-state", "behind")


def test_an_entry_joins_the_one_whose_script_shows_it_only_if_they_share_a_place():
    where = "mlx_lm.models.mamba:Mamba.__call__+1, mlx_lm.models.mamba:Mamba.__call__+2"
    near = entry("near", where=where, script="lost-state")
    far = entry("far", 3, script="lost-state")
    found = {one.id: one.entries for one in known(near, far, entry())}
    assert found == {"near": ("near", "lost-state"), "far": ("far",)}


def test_groups_that_one_entry_connects_become_one():
    wide = "mlx_lm.models.mamba:Mamba.__call__+1, mlx_lm.models.mamba:Mamba.__call__+2"
    entries = (entry("a"), entry("b", where=wide), entry("c", where=wide, script="a"))
    (one,) = known(*entries)
    assert set(one.entries) == {"a", "b", "c"}


def test_an_entry_that_shows_only_behind_others_does_not_count_beside_one_that_shows():
    hidden = entry("hidden", families=("*",), verdicts={})
    assert known(entry(), hidden)[0].families == ("mamba",)
    (alone,) = known(hidden)
    assert alone.severity is Severity.HIDDEN
    assert (alone.points, len(alone.families)) == (0, 3)


def test_the_first_entry_says_how_bad_it_is_else_the_worst_of_all():
    crash = entry("crash", verdicts={"staggered": Verdict.CRASH})
    leak = {"ragged": Verdict.LEAK}
    assert known(entry(verdicts=leak), crash)[0].severity is Severity.CRASH
    said = entry(verdicts=leak, severity=Severity.REPLY)
    assert known(said, crash)[0].severity is Severity.REPLY


def test_only_other_seeds_mean_wrong_numbers():
    assert entry(verdicts={}, other_seeds=("traffic",)).harm is Severity.TOKENS
    crash = {"ragged": Verdict.CRASH}
    assert entry(verdicts=crash, other_seeds=("traffic",)).harm is Severity.CRASH


def test_what_a_user_suffers_is_said_or_made_of_kind_family_and_scenario():
    (said,) = known(entry(suffers="mamba  forgets\nits prompt."))
    assert said.suffers == "mamba forgets its prompt."
    (made,) = known(entry())
    assert made.suffers == "mamba gives wrong tokens; seen with: prompts of unequal length."
    (many,) = known(entry(families=("*",), verdicts={"staggered": Verdict.CRASH}))
    assert many.suffers == "3 families give an error or no answer."


def test_a_defect_has_its_places_its_mend_and_its_script():
    (one,) = known(entry(script="docs/defects/mlx_lm/lost_state.py"))
    place = Place("mlx_lm.models.mamba", "Mamba.__call__", 1)
    line = line_of(place, source_text(place.file))
    assert one.where == (f"mlx_lm/models/mamba.py:{line}",)
    assert one.mend == "The state is the row's own."
    assert one.script == "docs/defects/mlx_lm/lost_state.py"
    assert one.cause == "The state is taken at the padded end."
    assert known(entry("other"))[0].mend == ""


def test_every_entry_of_the_project_is_in_one_defect():
    entries = load_expectations().defects
    found = known_defects(entries, dataclasses.replace(GROUND, cases={}))
    assert sorted(e for one in found for e in one.entries) == sorted(e.id for e in entries)


def test_no_entry_of_the_project_says_for_nothing_how_bad_it_is():
    said = [group for group in groups(load_expectations().defects) if group[0].severity]
    assert said
    for first, *others in said:
        (without,) = known(msgspec.structs.replace(first, severity=None), *others)
        assert without.severity is not first.severity, first.id


def test_only_first_entries_of_the_project_say_it():
    others = [entry for _, *others in groups(load_expectations().defects) for entry in others]
    assert [e.id for e in others if e.suffers or e.severity or not e.served] == []
