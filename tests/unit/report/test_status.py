"""Engines over their releases."""

import msgspec
import pytest
from results_by_hand import make_finding, make_result, of_release, over_releases

from conformance.core.levels import LEVELS
from conformance.core.verdict import ScheduleResult, Verdict
from conformance.report.status import level_sentence, release_of, standings, status_of
from conformance.run.registry import build_registry


def test_every_scenario_belongs_to_one_level():
    names = build_registry().scenarios
    assert {name: sum(level.has(name) for level in LEVELS) for name in names} == dict.fromkeys(
        names, 1
    )


@pytest.mark.parametrize(
    ("versions", "release"),
    [
        ({"python": "3.12", "mlx": "0.32.4", "mlx-lm": "0.32.2"}, ("mlx-lm", "0.32.2")),
        (
            {"mlx": "0.32.4", "mlx-lm": "0.32.2", "vllm-mlx": "0.4.0"},
            ("vllm-mlx", "0.4.0 on mlx-lm 0.32.2"),
        ),
        (
            {"mlx-lm": "0.32.2", "mlx-lm source": "/src/mlx-lm@abc"},
            ("mlx-lm", "0.32.2 at /src/mlx-lm@abc"),
        ),
        ({"mlx": "0.32.4"}, ("", "unknown")),
    ],
)
def test_a_release_is_that_of_the_engine_or_of_its_library(versions, release):
    assert release_of(make_result(versions=versions)) == release


def of(scenario, family="llama", verdict=Verdict.EXACT, **changes):
    return make_result(f"mlx_lm/{family}/{scenario}/float32/0", verdict, **changes)


def test_the_sentence_names_all_most_some_and_none():
    found = [
        *(of("ragged", family) for family in "abc"),
        *(of("staggered", family) for family in "ab"),
        of("staggered", "c", Verdict.DRIFT),
        of("kept", "a"),
        of("kept", "b", Verdict.CRASH),
        of("quantized", "a", Verdict.DIVERGED),
        of("speculative", "a", Verdict.UNSUPPORTED, expected=True),
    ]
    assert level_sentence(standings(found)) == (
        "conforms at together; in most families at late join (2 of 3); "
        "in some families at prefixes (1 of 2); not at quantized"
    )
    assert level_sentence(standings(found), counts=False).endswith("at prefixes; not at quantized")
    assert level_sentence(()) == "nothing is decided"


def test_a_family_is_right_at_a_level_only_in_all_its_cases():
    found = [of("ragged"), of("identical", verdict=Verdict.DIVERGED, expected=True)]
    (standing,) = standings(found)
    assert (standing.right, standing.decided) == (0, 1)


def test_releases_are_in_the_order_of_their_numbers():
    lm, vlm = status_of(over_releases())
    assert [release.name for release in lm.releases] == ["0.9.1", "0.10.0", "0.10.1"]
    assert (lm.engine, lm.package, lm.newest.day) == ("mlx_lm", "mlx-lm", "2026-11-20")
    assert (vlm.engine, vlm.package, len(vlm.releases)) == ("mlx_vlm", "mlx-vlm", 1)
    assert vlm.steps == ()


def test_of_a_cases_results_in_a_release_the_newest_counts():
    old = of_release([of("ragged", verdict=Verdict.CRASH)], "1.0", "2026-11-01")
    new = of_release([of("ragged")], "1.0", "2026-11-02")
    for results in ((*old, *new), (*new, *old)):
        (engine,) = status_of(results)
        assert [(r.name, r.right, r.decided) for r in engine.releases] == [("1.0", 1, 1)]


def test_a_right_result_that_left_schedules_out_replaces_none_that_left_out_none():
    whole = of_release([of("ragged", verdict=Verdict.CRASH)], "1.0", "2026-11-01")
    (part,) = of_release([of("ragged")], "1.0", "2026-11-02")
    part = msgspec.structs.replace(part, left_out=("long",))
    (engine,) = status_of([*whole, part])
    assert (engine.newest.right, engine.newest.decided) == (0, 1)
    assert engine.badge.colour == "red"
    (engine,) = status_of([part])
    assert (engine.newest.right, engine.badge.colour) == (1, "brightgreen")


def test_right_wrong_and_undecided_cases_are_counted():
    (engine, _) = status_of(over_releases())
    newest = engine.newest
    assert (newest.right, newest.decided, newest.undecided) == (17, 19, 1)
    assert [result.case for result in newest.unexpected] == ["mlx_lm/qwen3/ragged/float32/0"]
    cell = newest.families["qwen3"]
    assert (cell.right, cell.decided, cell.glyph, cell.style) == (3, 4, "X!", "unexpected")
    assert newest.families["mamba"].style == "known"
    assert newest.families["llama"].style == "v-exact"


def wrong(version, day, *schedules):
    """A case with two schedules, of which these are wrong."""
    names = ("long", "short")
    played = tuple(
        ScheduleResult(n, Verdict.DIVERGED if n in schedules else Verdict.EXACT) for n in names
    )
    findings = tuple(make_finding(schedule=name, what=f"{name} is off") for name in schedules)
    verdict = Verdict.DIVERGED if schedules else Verdict.EXACT
    result = of("ragged", verdict=verdict, schedules=played, evidence=findings)
    return of_release([result], version, day)


def test_what_came_and_went_is_listed_by_schedule():
    results = (
        *wrong("1.0", "2026-11-01", "long"),
        *wrong("1.1", "2026-11-02", "short"),
        *wrong("1.2", "2026-11-03", "short"),
    )
    (engine,) = status_of(results)
    last, first = engine.steps
    assert last.sentence == "nothing came or went, of 2 schedules"
    assert first.sentence == "1 came and 1 went, of 2 schedules"
    ((came,), (went,)) = first.came, first.went
    assert (came.family, came.schedules, came.what) == ("llama", ("ragged/short",), "short is off")
    assert (went.schedules, went.what) == (("ragged/long",), "long is off")


def test_what_only_one_release_has_neither_came_nor_went():
    old = of_release([of("ragged")], "1.0", "2026-11-01")
    new = of_release([of("ragged", "mamba", Verdict.DRIFT)], "1.1", "2026-11-02")
    (engine,) = status_of((*old, *new))
    (step,) = engine.steps
    assert step.sentence == "no schedule was run in both"


def test_families_that_differ_come_first():
    (engine, _) = status_of(over_releases())
    assert engine.families == ("llama", "mamba", "qwen3", "gemma3", "qwen3_moe")


@pytest.mark.parametrize(
    ("results", "colour"),
    [
        ([of("ragged")], "brightgreen"),
        ([of("ragged"), of("repeat", verdict=Verdict.DRIFT, expected=True)], "green"),
        ([of("ragged", verdict=Verdict.DRIFT, expected=True)], "red"),
        ([of("ragged", verdict=Verdict.DRIFT)], "red"),
        ([of("ragged", verdict=Verdict.UNSUPPORTED, expected=True)], "lightgrey"),
    ],
)
def test_the_badge_has_the_level_of_the_newest_release(results, colour):
    (engine,) = status_of(of_release(results, "1.0", "2026-11-01"))
    assert engine.badge.colour == colour
    assert engine.badge.label == "mlx_lm 1.0"
    assert engine.badge.message == level_sentence(engine.newest.standings, counts=False)
