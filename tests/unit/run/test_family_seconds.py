"""Recorded seconds: of families with a record and without, in equal parts, from results."""

import importlib.util
import itertools
import json
from pathlib import Path

import pytest
from results_by_hand import make_result

from conformance.core.verdict import encode
from conformance.report.jsonl import write_lines
from conformance.run.family_seconds import FamilySeconds, measured

PLANTED = FamilySeconds({"lib/slow": 100.0, "lib/a": 30.0, "lib/b": 30.0, "lib/c": 40.0})


def test_a_family_without_a_record_counts_as_the_median():
    assert PLANTED.of("lib/slow") == 100.0
    assert PLANTED.of("lib/new") == 35.0
    assert FamilySeconds({}).of("lib/new") == 1.0


def test_a_scenario_without_a_record_takes_what_it_does_in_other_families():
    found = FamilySeconds({"a": {"wide": 1.0, "ragged": 3.0}, "b": {"wide": 5.0}, "c": 16.0})
    assert (found.of("a"), found.of("b"), found.of("c")) == (4.0, 5.0, 16.0)
    assert found.of_case("a", "wide") == 1.0
    assert found.of_case("c", "wide") == 3.0
    assert found.of_case("c", "traffic") == 4.0


def test_parts_have_equal_seconds_and_not_equal_numbers():
    assert PLANTED.parts(PLANTED.recorded, 2) == (("lib/slow",), ("lib/c", "lib/a", "lib/b"))


def test_parts_do_not_depend_on_the_order_in_which_groups_come():
    groups = ["lib/x", "lib/y", *PLANTED.recorded]
    found = {PLANTED.parts(order, 3) for order in itertools.permutations(groups)}
    assert len(found) == 1


def test_without_any_record_names_are_dealt_out_in_turn():
    assert FamilySeconds({}).parts("dbac", 2) == (("a", "c"), ("b", "d"))
    assert FamilySeconds({}).parts("a", 2) == (("a",), ())


def test_the_seconds_of_a_scenario_are_the_mean_of_the_engines_of_a_library():
    results = [
        make_result("one/llama/ragged/float32/0", seconds=1.25),
        make_result("two/llama/repeat/float32/0", seconds=2.0),
        make_result("one/llama/repeat/float32/0", seconds=4.0),
        make_result("one/gemma/ragged/float32/0", seconds=0.12345),
    ]
    found = measured(results, lambda result: f"lib/{result.family}")
    assert found == {
        "lib/gemma": {"ragged": pytest.approx(0.123)},
        "lib/llama": {"ragged": pytest.approx(1.25), "repeat": 3.0},
    }
    assert list(found) == ["lib/gemma", "lib/llama"]


def test_the_record_of_the_package_is_of_its_own_families():
    loaded = FamilySeconds.load()
    found = loaded.recorded
    assert all(loaded.of(name) > 0 for name in found)
    assert {name.partition("/")[0] for name in found} == {"mlx_lm", "mlx_vlm"}


@pytest.fixture(scope="module")
def script():
    path = Path(__file__).parents[3] / "ci" / "family_seconds.py"
    spec = importlib.util.spec_from_file_location("recorder", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_script_records_what_results_say(script, tmp_path):
    shards = [tmp_path / "1.jsonl", tmp_path / "2.jsonl"]
    for path, family in zip(shards, ("mamba", "llama"), strict=True):
        lines = [encode(make_result(f"mlx_lm/{family}/{s}/float32/0")) for s in ("repeat", "wide")]
        write_lines(path, lines)
    target = tmp_path / "seconds.json"
    assert script.main([str(path) for path in shards], target) == ""
    each = {"repeat": 0.5, "wide": 0.5}
    assert json.loads(target.read_text()) == {"mlx_lm/llama": each, "mlx_lm/mamba": each}


@pytest.mark.parametrize(
    ("lines", "why"),
    [
        ([], "no results in"),
        (["nonsense"], "line 1"),
        ([encode(make_result("other/f/s/float32/0"))], "no engine 'other' is installed"),
    ],
)
def test_the_script_says_why_it_records_nothing(script, tmp_path, lines, why):
    write_lines(tmp_path / "r.jsonl", lines)
    assert why in script.main([str(tmp_path / "r.jsonl")], tmp_path / "seconds.json")
    assert not (tmp_path / "seconds.json").exists()
