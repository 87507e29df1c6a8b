"""The file of pairs, and what `ci/release_pairs.py` says of planted results."""

import importlib.util
import json
import sys
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
from results_by_hand import make_finding, make_result

from conformance.core.verdict import ScheduleResult, Verdict, decode, encode
from conformance.tools.releases.pins import Release, known_pins

SCRIPT = Path(__file__).parents[2] / "ci" / "release_pairs.py"


@pytest.fixture(scope="module")
def script():
    spec = importlib.util.spec_from_file_location("release_pairs", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # its dataclass looks there for its annotations
    spec.loader.exec_module(module)
    yield module
    del sys.modules[spec.name]


@pytest.fixture
def pair(script):
    return script.Pair(
        "mlx-lm", "0.31.1", "0.31.2", "planted", "nobody", ("llama",), ("mlx_lm.*",), "merge"
    )


def write_case(folder, version, verdict, **changes):
    result = make_result("mlx_lm/llama/ragged/float32/0", verdict, **changes)
    result = msgspec.structs.replace(result, schedules=(ScheduleResult("ragged", verdict),))
    (folder / f"mlx-lm-{version}.jsonl").write_text(encode(result) + "\n")


def write_caches(folder, version, *methods):
    line = {"class": "mlx_lm.KVCache", "verdict": "right", "methods": methods, "differences": []}
    (folder / f"mlx-lm-{version}.caches.jsonl").write_text(json.dumps(line) + "\n")


def test_each_pair_is_of_known_releases_in_their_order(script):
    for pair in script.pairs():
        before, after = (Release(pair.library, v) for v in (pair.before, pair.after))
        assert known_pins(before) is not None
        assert known_pins(after) is not None
        assert before.order < after.order


def test_a_pair_is_found_by_a_case_that_changed(script, pair, tmp_path):
    write_case(tmp_path, "0.31.1", Verdict.DRIFT)
    assert script.judged(pair, [tmp_path]) == "not run"
    write_case(tmp_path, "0.31.2", Verdict.EXACT)
    found = script.judged(pair, [tmp_path])
    assert found.startswith("`mlx_lm/llama/ragged/float32/0` ragged: drift")
    other = replace(pair, shows="broadcast")
    assert script.judged(other, [tmp_path]) == "not found", "it is about something else"


def test_a_pair_is_found_by_single_streams_that_moved(script, pair, tmp_path):
    for version, nats in (("0.31.1", -3.0), ("0.31.2", -4.0)):
        result = make_result("mlx_lm/llama/ragged/float32/0", Verdict.EXACT)
        schedule = ScheduleResult("ragged", Verdict.EXACT, single_logprob=nats)
        result = msgspec.structs.replace(result, schedules=(schedule,))
        (tmp_path / f"mlx-lm-{version}.jsonl").write_text(encode(result) + "\n")
    found = script.judged(pair, [tmp_path])
    assert found == (
        "`mlx_lm/llama/ragged/float32/0` (ragged): single streams moved, by 1 nats in all"
    )
    assert script.judged(replace(pair, shows="broadcast"), [tmp_path]) == "not found"


def test_a_pair_whose_cases_are_alike_is_not_found(script, pair, tmp_path):
    for version in ("0.31.1", "0.31.2"):
        write_case(tmp_path, version, Verdict.EXACT)
    assert script.judged(pair, [tmp_path]) == "not found"


def test_a_pair_is_found_by_a_cache_class_only_in_what_it_is_about(script, pair, tmp_path):
    write_caches(tmp_path, "0.31.1")
    write_caches(tmp_path, "0.31.2", "nbytes")
    assert script.judged(pair, [tmp_path]) == "not found"
    write_caches(tmp_path, "0.31.2", "merge")
    found = script.judged(pair, [tmp_path])
    assert found.startswith("only: mlx_lm.KVCache merge: not in 0.31.1"), "a method is no behaviour"


def test_what_one_release_refuses_is_shown_and_not_counted(script, pair, tmp_path):
    write_case(tmp_path, "0.31.1", Verdict.UNSUPPORTED)
    write_case(tmp_path, "0.31.2", Verdict.EXACT)
    assert script.judged(pair, [tmp_path]).startswith("only: `mlx_lm/llama/ragged/float32/0`")


@pytest.mark.parametrize(
    ("got", "found"),
    [("signal SIGSEGV", "`mlx_lm/llama/ragged/float32/0`"), ("ModelError: no config", "not run")],
)
def test_a_case_that_crashed_ran_if_its_model_was_loaded(script, pair, tmp_path, got, found):
    crash = make_finding(Verdict.CRASH, check="process", schedule="", got=got)
    write_case(tmp_path, "0.31.1", Verdict.CRASH, evidence=(crash,))
    result = tmp_path / "mlx-lm-0.31.1.jsonl"
    without = decode(result.read_text())
    result.write_text(encode(msgspec.structs.replace(without, schedules=())) + "\n")
    write_case(tmp_path, "0.31.2", Verdict.EXACT)
    assert script.judged(pair, [tmp_path]).startswith(found)


def test_a_case_that_the_harness_could_not_run_is_not_counted(script, pair, tmp_path):
    own = make_finding(Verdict.CRASH, check="harness", schedule="")
    write_case(tmp_path, "0.31.1", Verdict.CRASH, evidence=(own,))
    write_case(tmp_path, "0.31.2", Verdict.EXACT)
    assert script.judged(pair, [tmp_path]) == "not run"


def test_the_table_says_why_a_pair_is_not_found(script, pair, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(script, "pairs", lambda: [replace(pair, unseen="hidden | behind another")])
    script.main([tmp_path])
    assert "| not run: hidden \\| behind another |" in capsys.readouterr().out
    for version, verdict in (("0.31.1", Verdict.DRIFT), ("0.31.2", Verdict.EXACT)):
        write_case(tmp_path, version, verdict)
    script.main([tmp_path])
    assert "hidden" not in capsys.readouterr().out, "it was found"


def test_pairs_of_the_same_releases_are_played_in_one_call(script, pair, monkeypatch, tmp_path):
    monkeypatch.syspath_prepend(SCRIPT.parent)
    player = importlib.import_module("play_release_pairs")
    other = replace(pair, families=("mamba2", "llama"), caches=(), scenarios=("ragged",))
    later = replace(other, before="0.31.2", after="0.31.3")
    first, second = player.groups([pair, later, other])
    command = player.command(first, tmp_path, ["--jobs", "1"])
    assert " ".join(command[3:]) == (
        "releases mlx-lm==0.31.1,0.31.2 --family llama --family mamba2 --scenario ragged "
        f"--caches also --json {tmp_path}/mlx-lm-0.31.1-0.31.2 --resume --jobs 1"
    )
    assert "--caches no" in " ".join(player.command(second, tmp_path, []))


def test_a_pair_beside_other_versions_is_played_and_judged_apart(
    script, pair, monkeypatch, tmp_path
):
    monkeypatch.syspath_prepend(SCRIPT.parent)
    player = importlib.import_module("play_release_pairs")
    pinned = replace(pair, caches=(), pins=("mlx==0.32.4",))
    first, second = player.groups([pair, pinned])
    assert (first, second) == ([pair], [pinned])
    made = tmp_path / "mlx-lm-0.31.1-0.31.2+mlx==0.32.4"
    command = " ".join(player.command(second, tmp_path, []))
    assert command.endswith(f"--pin mlx==0.32.4 --caches no --json {made} --resume")
    made.mkdir()
    for version, verdict in (("0.31.1", Verdict.CRASH), ("0.31.2", Verdict.EXACT)):
        write_case(made, version, verdict)
        write_case(tmp_path, version, Verdict.EXACT)
    assert script.judged(pinned, [tmp_path, made]).startswith("`mlx_lm/llama/ragged/float32/0`")
    assert script.judged(pair, [tmp_path, made]) == "not found"
