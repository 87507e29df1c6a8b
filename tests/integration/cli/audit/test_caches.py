"""``conformance audit caches``: the verbs of batch caches, known defects, exit codes."""

import json
import os
from pathlib import Path

import pytest
from click.testing import CliRunner
from forked import run_python
from mlx_lm.models import cache as lm

from conformance.app.cli.audit import caches
from conformance.app.cli.main import group
from conformance.power.caches import discovery
from conformance.power.caches.cache_defects import load_cache_defects

ROOT = Path(__file__).parents[4]
DEFECTS = load_cache_defects()
SCRIPTS = sorted({e.script for e in DEFECTS if e.script.startswith("docs/defects/caches/")})
# That its entry shows is tested by day; of the scripts, one.
BY_DAY = "docs/defects/caches/extract_of_empty_lm.py"


def call(*arguments):
    return CliRunner().invoke(group, ["audit", "caches", "--examples", "10", *arguments])


def test_right_classes_pass_and_are_listed():
    done = call("--class", "mlx_lm.KVCache", "--class", "mlx_lm.Rot*")
    assert done.exit_code == 0, done.output
    assert "mlx_lm.KVCache" in done.output
    assert "mlx_lm.RotatingKVCache" in done.output
    assert "right" in done.output
    assert "mlx_lm.BatchKVCache" not in done.output


def test_known_defects_are_named_and_do_not_fail():
    done = call("--class", "mlx_vlm.BatchQuantizedKVCache")
    assert done.exit_code == 0, done.output
    assert "known: vlm-offset-in-place in mlx_vlm.BatchQuantizedKVCache" in done.output


def test_a_defect_is_shown_by_its_verbs(monkeypatch):
    monkeypatch.setattr(lm.KVCache, "nbytes", property(lambda self: 1))
    done = call("--class", "mlx_lm.KVCache")
    assert done.exit_code == 1
    assert "mlx_lm.KVCache differs:" in done.output
    assert "1. new, prompt of 0" in done.output
    assert "nbytes: nbytes says 1, 0 are held" in done.output


def test_a_store_is_tested_and_a_defect_of_it_shown_by_its_calls(monkeypatch):
    done = call("--class", "mlx_lm.LRU*", "--class", "mlx_lm.TokenBuffer")
    assert done.exit_code == 0, done.output
    assert "bytes fetch insert new number" in " ".join(done.output.split())
    monkeypatch.setattr(lm.LRUPromptCache, "nbytes", property(lambda self: 1))
    done = call("--class", "mlx_lm.LRU*")
    assert done.exit_code == 1
    assert "mlx_lm.LRUPromptCache differs:\n  0. new 1 0\n  returned: its bytes: 1" in done.output


def test_a_class_without_a_test_fails(monkeypatch):
    monkeypatch.delitem(discovery.MAKERS, "KVCache")
    done = call("--class", "mlx_lm.KVCache")
    assert done.exit_code == 1
    assert "mlx_lm.KVCache: uncovered" in done.output


def test_an_entry_that_no_longer_shows_fails(monkeypatch):
    right = "mlx_lm.BatchKVCache 0 float32; new 0 0; decode 1"
    entry = next(e for e in DEFECTS if e.id == "extract-of-empty")
    stale = type(entry)(**{f: getattr(entry, f) for f in entry.__struct_fields__} | {"play": right})
    monkeypatch.setattr(caches, "load_cache_defects", lambda: (stale,))
    done = call("--class", "mlx_lm.BatchKVCache")
    assert done.exit_code == 1
    assert "known defect extract-of-empty no longer shows" in done.output


def test_json_has_a_line_for_each_class(tmp_path):
    path = tmp_path / "caches.jsonl"
    assert call("--class", "mlx_lm.*KVCache", "--json", str(path)).exit_code == 0
    lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    assert [line["class"] for line in lines] == [
        "mlx_lm.BatchKVCache",
        "mlx_lm.BatchRotatingKVCache",
        "mlx_lm.KVCache",
        "mlx_lm.RotatingKVCache",
    ]
    assert lines[2]["verdict"] == "right"
    assert lines[2]["verbs"]["new"] == 10


def test_no_such_class_is_one_sentence():
    done = call("--class", "no_such")
    assert done.exit_code == 2
    assert "no class matches 'no_such'" in done.output


@pytest.mark.parametrize(
    "script", [pytest.param(s, marks=[pytest.mark.nightly] * (s != BY_DAY)) for s in SCRIPTS]
)
def test_each_script_shows_its_defect(script):
    done = run_python([ROOT / script], cwd=ROOT, env=dict(os.environ), timeout=240)
    assert (done.returncode, done.stderr) == (1, "")
    assert "expected" in done.stdout
