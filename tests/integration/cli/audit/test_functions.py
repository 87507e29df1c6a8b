"""``conformance audit functions``: the table, what is wrong, exit codes."""

import json

from click.testing import CliRunner
from mlx_vlm import apc

from conformance.app.cli.main import group


def call(*arguments):
    return CliRunner().invoke(group, ["audit", "functions", *arguments])


def test_properties_that_hold_are_listed():
    done = call("--property", "keys: *")
    assert done.exit_code == 0, done.output
    assert "keys: of prompts" in done.output
    assert "right" in done.output
    assert "samplers" not in done.output


def test_one_that_does_not_hold_fails_with_its_sentence(monkeypatch):
    monkeypatch.setattr(apc, "_sequence_hash", lambda tokens, extra, size: len(tokens))
    done = call("--library", "mlx_vlm", "--property", "keys: of prompts")
    assert done.exit_code == 1
    assert "mlx_vlm, keys: of prompts: prompts: " in done.output
    assert "have one key" in done.output


def test_a_known_defect_is_said_to_be_known_and_one_that_is_gone_fails(monkeypatch):
    name = "files: bytes of unreadable ones"
    done = call("--property", name)
    assert done.exit_code == 0, done.output
    assert f"known: bytes-of-unreadable-files in mlx_vlm, {name}" in done.output
    bytes_there = property(lambda self: sum(f.stat().st_size for f in self.dir.iterdir()))
    monkeypatch.setattr(apc.DiskBlockStore, "disk_bytes", bytes_there)
    done = call("--property", name)
    assert done.exit_code == 1
    assert "bytes-of-unreadable-files no longer shows: remove its entry" in done.output


def test_json_has_a_line_for_each_property(tmp_path):
    path = tmp_path / "found.jsonl"
    assert call("--property", "plans: *", "--json", str(path)).exit_code == 0
    lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    assert [line["property"] for line in lines] == ["plans: of caches", "plans: of checkpoints"]
    assert {line["verdict"] for line in lines} == {"right"}


def test_no_such_property_is_one_sentence():
    done = call("--property", "no_such")
    assert done.exit_code == 2
    assert "no property matches 'no_such'" in done.output
    assert call("--library", "no_such").exit_code == 2
