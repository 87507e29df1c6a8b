"""``conformance audit tiers``: the present choice, and a new one from files."""

import json
from types import SimpleNamespace

import msgspec
import pytest
from click.testing import CliRunner
from results_by_hand import make_result

from conformance.app.cli.audit import tiers as command
from conformance.core.verdict import ScheduleResult, Verdict, encode
from conformance.power.mutation import kills
from conformance.report.trials import Kill, Outcome, Trial
from conformance.run.tiers import Choice, TierData


def run(*arguments):
    return CliRunner().invoke(command.command, [*map(str, arguments)], catch_exceptions=True)


@pytest.fixture
def files(tmp_path):
    """A fault that one of two schedules of a rung catches, and what these cost."""
    killed = (Kill("ragged", "diverged", ("free",), schedules=("ragged",)),)
    trial = Trial(
        *("A1.x", "x", "mlx_lm", "llama", "float32", 0, Outcome.KILLED), killed, complete=True
    )
    schedules = tuple(
        ScheduleResult(name, Verdict.EXACT, seconds=s)
        for name, s in (("ragged", 1.0), ("one_beside_medium", 3.0))
    )
    result = make_result(schedules=schedules, seconds=4.0)
    (tmp_path / "power.jsonl").write_bytes(msgspec.json.encode(trial) + b"\n")
    (tmp_path / "results.jsonl").write_text(encode(result) + "\n")
    return tmp_path


def chosen(files, *more):
    return run("--power", files / "power.jsonl", "--results", files / "results.jsonl", *more)


def test_the_present_choice_is_shown_with_what_it_catches():
    done = run()
    assert done.exit_code == 0, done.output
    lines = {tuple(line.split()[:2]): line for line in done.output.splitlines()}
    for library in ("mlx_lm", "mlx_vlm"):
        assert "0%" < lines["quick", library].split()[2] < lines["default", library].split()[2]
    assert "chosen on " in done.output


def test_a_new_choice_is_shown_and_kept_only_if_asked(files, monkeypatch):
    for name in ("tiers", "kills"):
        module = getattr(command, name)
        stand_in = SimpleNamespace(
            FILE=module.FILE, __file__=str(files / "x.py"), Tier=getattr(module, "Tier", None)
        )
        monkeypatch.setattr(command, name, stand_in)
    assert "1 of 1 faults" in chosen(files).output
    assert not (files / "tiers.json").exists()
    done = chosen(files, "--write")
    assert done.exit_code == 0, done.output
    data = msgspec.json.decode((files / "tiers.json").read_bytes(), type=TierData)
    choice = data.tiers["default"]["mlx_lm"]
    assert choice.left_out["ragged"] == ("one_beside_medium",)
    assert (choice.killed, choice.of, choice.share) == (1, 1, 0.25)
    record = json.loads((files / "kills.json").read_text())
    assert record == {"places": ["ragged/ragged"], "caught": {"mlx_lm/llama": {"A1.x": [0]}}}


def test_the_present_choice_is_extended_by_what_catches_newer_faults(files, monkeypatch):
    choice = Choice(0, 0, 0.5, {"ragged": ("*",)}, {})
    present = TierData("2026-01-01", {"mlx": "1"}, {"default": {"mlx_lm": choice}})
    monkeypatch.setattr(command, "read_tiers", lambda: present)
    monkeypatch.setattr(command, "read_kills", lambda: kills.Kills((), {}))
    done = chosen(files, "--extend")
    assert done.exit_code == 0, done.output
    assert "1 of 1 faults" in done.output
    assert "extended on " in done.output


def test_a_choice_needs_both_files(files):
    for options in (("--power", files / "power.jsonl"), ("--write",), ("--extend",)):
        assert "needs --power and --results" in str(run(*options).exception)


def test_results_of_a_smaller_tier_are_refused(files):
    part = make_result(schedules=(ScheduleResult("ragged", Verdict.EXACT),), left_out=("other",))
    (files / "results.jsonl").write_text(encode(part) + "\n")
    assert "is not of the full tier" in str(chosen(files).exception)


def test_results_of_nothing_that_was_tried_are_refused(files):
    other = make_result("mlx_vlm/llava/ragged/float32/0")
    (files / "results.jsonl").write_text(encode(other) + "\n")
    assert "no library has both" in str(chosen(files).exception)
