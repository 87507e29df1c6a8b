"""``conformance audit functions``: the table, what is wrong, exit codes."""

import json
import sys

from click.testing import CliRunner
from mlx_lm import sample_utils as lm
from mlx_vlm import sample_utils as vlm
from mlx_vlm.models import rope_utils

from conformance.app.cli.main import group
from conformance.power.properties import load_function_defects


def call(*arguments):
    return CliRunner().invoke(group, ["audit", "functions", *arguments])


def test_properties_that_hold_are_listed():
    done = call("--property", "mrope: *")
    assert done.exit_code == 0, done.output
    assert "mrope: heads" in done.output
    assert "right" in done.output
    assert "samplers" not in done.output


def test_one_that_does_not_hold_fails_with_its_sentence(monkeypatch):
    monkeypatch.setattr(rope_utils, "get_mrope_section", lambda **_: [1])
    done = call("--library", "mlx_vlm", "--property", "mrope: settings")
    assert done.exit_code == 1
    assert "mlx_vlm, mrope: settings: " in done.output


def test_a_known_defect_is_said_to_be_known_and_one_that_is_gone_fails(monkeypatch):
    name = "samplers: apply_min_p that keeps more"
    done = call("--property", name)
    assert done.exit_code == 0, done.output
    assert f"known: min-p-keeps-one in mlx_vlm, {name}" in done.output
    monkeypatch.setattr(vlm, "apply_min_p", lm.apply_min_p)
    done = call("--property", name)
    assert done.exit_code == 1
    assert "min-p-keeps-one no longer shows: remove its entry" in done.output


def test_json_has_a_line_for_each_property(tmp_path):
    path = tmp_path / "found.jsonl"
    assert (
        call(
            "--property", "caches: chunks", "--property", "mrope: heads", "--json", str(path)
        ).exit_code
        == 0
    )
    lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    assert [line["property"] for line in lines] == ["caches: chunks", "mrope: heads"]
    assert {line["verdict"] for line in lines} == {"right"}


def test_what_is_asked_for_and_not_tried_is_named(monkeypatch):
    """A module that cannot be imported leaves the others; a lost library of a glob is named."""
    module = "conformance.power.properties.mlx_vlm.models.sparse"
    monkeypatch.setitem(sys.modules, module, None)
    done = call("--library", "mlx_vlm", "--property", "mrope: heads")
    assert done.exit_code == 1
    assert "mrope: heads" in done.output
    assert "not tried: plugin 'mlx_vlm' is used without sparse of conformance.power" in done.output
    monkeypatch.undo()
    monkeypatch.setitem(sys.modules, "conformance.plugins.mlx_vlm.library", None)
    done = call("--library", "mlx_*", "--property", "caches: room")
    assert done.exit_code == 1
    assert "not tried: plugin 'mlx_vlm' is used without its libraries" in done.output


def test_a_defect_that_only_a_script_shows_is_said_not_to_be_tried():
    entries = [one for one in load_function_defects() if not one.property]
    assert {one.id for one in entries} >= {"half-bits-joined"}
    whole = call("--library", "mlx_vlm")
    assert whole.exit_code == 0, whole.output
    for one in entries:
        assert f"not tried: {one.id}, which only {one.script} shows" in whole.output
    assert "not tried" not in call("--library", "mlx_lm").output


def test_no_such_property_is_one_sentence():
    done = call("--property", "no_such")
    assert done.exit_code == 2
    assert "no property matches 'no_such'" in done.output
    assert call("--library", "no_such").exit_code == 2
