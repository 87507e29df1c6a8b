"""Recorded seconds: of families with a record and without, in equal parts, from results."""

import heapq
import importlib.util
import itertools
import json
from pathlib import Path

import pytest
from results_by_hand import make_result

from conformance.core.verdict import encode
from conformance.report.jsonl import write_lines
from conformance.run.family_seconds import FamilySeconds, TimeLeft, measured

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
    servers = {"mlx_lm_server", "mlx_vlm_server"}
    assert {name.partition("/")[0] for name in found} - servers == {"mlx_lm", "mlx_vlm"}


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
    target.write_text('{"mlx_lm/llama": {"wide": 9.0}, "mlx_lm_server/llama/served_ends": {}}')
    assert script.main([str(path) for path in shards], target) == ""
    each = {"repeat": 0.5, "wide": 0.5}
    assert json.loads(target.read_text()) == {
        "mlx_lm/llama": each,
        "mlx_lm/mamba": each,
        "mlx_lm_server/llama/served_ends": {},
    }


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


# The time left, by the logs of two runs of 44 cases on a busy machine: one is the record ----------

# By engine and family: scenario, seconds in the one run, seconds in the other.
LOGS = {
    "mlx_lm/deepseek_v41": (
        ("repeat", 2.32, 4.41),
        ("traffic", 9.81, 25.65),
    ),
    "mlx_vlm/deepseek_v41": (
        ("repeat", 20.6, 13.89),
        ("quantized", 0.57, 0.5),
        ("traffic", 15.26, 19.39),
    ),
    "mlx_lm/gemma4": (
        ("repeat", 3.0, 1.91),
        ("traffic", 3.13, 8.94),
    ),
    "mlx_vlm/gemma4": (
        ("repeat", 5.38, 4.64),
        ("images_together", 0.5, 0.62),
        ("mixed_modality", 1.42, 2.07),
        ("quantized", 0.01, 0.02),
        ("traffic", 11.15, 22.37),
    ),
    "mlx_vlm/hy_v4": (
        ("repeat", 6.97, 3.91),
        ("quantized", 0.14, 0.31),
        ("traffic", 23.87, 33.17),
    ),
    "mlx_lm/llama": (
        ("repeat", 0.19, 0.21),
        ("traffic", 5.05, 8.19),
    ),
    "mlx_vlm/llama": (
        ("repeat", 0.33, 0.34),
        ("quantized", 0.21, 0.28),
        ("traffic", 1.48, 2.12),
    ),
    "mlx_lm/mamba2": (
        ("repeat", 2.63, 1.44),
        ("traffic", 2.76, 5.97),
    ),
    "mlx_vlm/mamba2": (
        ("repeat", 0.2, 0.22),
        ("quantized", 0.0, 0.0),
        ("traffic", 0.83, 2.56),
    ),
    "mlx_lm/qwen2_vl": (
        ("repeat", 1.5, 0.24),
        ("traffic", 1.31, 2.36),
    ),
    "mlx_vlm/qwen2_vl": (
        ("repeat", 6.43, 3.01),
        ("images_together", 2.95, 1.23),
        ("mixed_modality", 0.36, 0.3),
        ("quantized", 0.48, 0.33),
        ("traffic", 1.51, 7.43),
    ),
    "mlx_lm/qwen3_5": (
        ("repeat", 12.95, 4.89),
        ("traffic", 16.76, 7.02),
    ),
    "mlx_vlm/qwen3_5": (
        ("repeat", 4.58, 4.01),
        ("images_together", 0.38, 1.17),
        ("mixed_modality", 1.87, 2.25),
        ("quantized", 0.21, 0.5),
        ("traffic", 2.64, 6.42),
    ),
    "mlx_vlm/unlimited_ocr": (
        ("repeat", 7.54, 3.65),
        ("images_together", 1.58, 0.9),
        ("mixed_modality", 0.33, 0.88),
        ("quantized", 36.4, 35.46),
        ("traffic", 29.18, 30.89),
    ),
}
TIMES = 20
RATIOS = {
    of: [other / one for parts in LOGS.values() for s, one, other in parts if s == of and one > 0.1]
    for of in {scenario for parts in LOGS.values() for scenario, *_ in parts}
}
RECORD = FamilySeconds(
    {name: {scenario: one for scenario, one, _ in parts} for name, parts in LOGS.items()}
)


def ended(workers):
    """Each case with its seconds and the moment of its end: the longest families come first."""
    free = [0.0] * workers
    for place, name in enumerate(sorted(LOGS, key=RECORD.of, reverse=True)):
        for number in range(TIMES):
            now = heapq.heappop(free)
            for scenario, one, _ in LOGS[name]:
                ratios = RATIOS[scenario]
                seconds = one * ratios[(5 * place + 3 * number) % len(ratios)]
                now += seconds
                yield now, f"{name}{number}/{scenario}/float32/0", seconds
            heapq.heappush(free, now)


def recorded():
    return {
        f"{name}{number}/{scenario}/float32/0": RECORD.of_case(name, scenario)
        for name, parts in LOGS.items()
        for number in range(TIMES)
        for scenario, *_ in parts
    }


@pytest.mark.parametrize("workers", [2, 16])
@pytest.mark.parametrize("slower", [1, 3])
def test_it_is_right_within_a_quarter_after_half_a_minute(workers, slower):
    """But for a moment here and there: single cases took up to five times as long as recorded."""
    log = sorted(ended(workers))
    whole, left = log[-1][0] * slower, TimeLeft(recorded(), workers)
    off = []
    for moment, case, seconds in log:
        spent = moment * slower
        left.ended(case, seconds * slower)
        true = whole - spent
        if spent > 30 and true > 15 * slower:
            off.append(abs(left.seconds(spent) / true - 1))
    assert sum(each > 0.25 for each in off) < 0.05 * len(off)
    assert max(off) < 0.5


def test_nothing_is_known_before_the_first_end_and_nothing_left_after_the_last():
    left = TimeLeft({"e/f/wide/float32/0": 2.0})
    assert left.seconds(5.0) == 0.0
    left.ended("e/other/wide/float32/0", 9.0)
    assert left.seconds(5.0) == 0.0
    left.ended("e/f/wide/float32/0", 4.0)
    assert left.seconds(9.0) == 0.0
