"""``conformance golden verify``: what it writes, its exit codes, and where the extra is missing."""

import importlib.util
import json

import pytest
from click.testing import CliRunner

from conformance.app.cli.main import group
from conformance.power.transformers_check.check_results import (
    Explained,
    Reading,
    Result,
    State,
    encode,
)

GOOD, BAD = Reading(1.25, 1e-5, 1e-5), Reading(400.0, 4e-3, 1e-5, 0)
VERSIONS = {"transformers and torch": "transformers 5.23.0, torch 2.13.0"}
CAUSE = (Explained("mlx_lm", "mlx_lm/models/gemma.py:98", "wrong GELU"),)
AGREES = Result(
    "mlx_lm", "llama", "llama", State.AGREES, reading=GOOD, stream=GOOD, versions=VERSIONS
)
KNOWN = Result("mlx_lm", "gemma", "gemma", State.DISAGREES, reading=BAD, proof=GOOD, causes=CAUSE)
NEW = Result("mlx_lm", "glm", "glm", State.DISAGREES, reading=BAD)


def call(*arguments):
    found = ["golden", "verify", "--against", "transformers", *map(str, arguments)]
    return CliRunner().invoke(group, found)


@pytest.fixture
def earlier(tmp_path):
    def write(*results):
        path = tmp_path / "earlier.jsonl"
        path.write_text("".join(encode(result) + "\n" for result in results))
        return path

    return write


def test_results_as_known_end_well(earlier):
    done = call("--from", earlier(AGREES, KNOWN))
    assert done.exit_code == 0, done.output
    assert "llama: agrees; 1.0e-05 nats, 1.25 times the noise" in done.output
    assert "mlx_lm/models/gemma.py:98: wrong GELU; with that changed" in done.output
    assert "2 families: 1 agrees, 1 disagrees" in done.output


def test_a_disagreement_that_nothing_explains_is_named(earlier):
    done = call("--from", earlier(AGREES, NEW))
    assert done.exit_code == 1
    assert "not as known: glm" in done.output


def test_some_families_of_earlier_results(earlier):
    path = earlier(AGREES, NEW)
    assert call("--from", path, "--family", "lla*").exit_code == 0
    done = call("--from", path, "--family", "none*")
    assert done.exit_code == 2
    assert "no family matches 'none*'" in done.output


def test_earlier_results_that_are_none_are_reported_with_their_line(earlier):
    path = earlier(AGREES)
    path.write_text(path.read_text() + "{\n")
    target = path.parent / "table.md"
    done = call("--from", path, "--markdown", target)
    assert done.exit_code == 2
    assert "earlier.jsonl, line 2" in done.output
    assert not target.exists()


def test_the_table_goes_between_the_marks(earlier, tmp_path):
    target = tmp_path / "table.md"
    assert call("--from", earlier(AGREES, KNOWN), "--markdown", target).exit_code == 0
    target.write_text(f"# Title\n\n{target.read_text()}\ntail\n")
    assert call("--from", earlier(AGREES), "--markdown", target).exit_code == 0
    text = target.read_text()
    assert text.startswith("# Title\n")
    assert text.endswith("tail\n")
    assert "gemma" not in text


def test_goldens_that_are_not_there_are_reported(earlier, tmp_path):
    done = call("--from", earlier(AGREES), "--note", "--golden", tmp_path / "none")
    assert done.exit_code == 2
    (tmp_path / "golden").mkdir()
    done = call("--from", earlier(AGREES), "--note", "--golden", tmp_path / "golden")
    assert "written to 0 goldens; no golden of llama" in done.output


def test_without_the_extra_one_sentence_says_how_to_get_it(monkeypatch):
    find = importlib.util.find_spec
    gone = {"torch"}
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *rest: None if name in gone else find(name, *rest)
    )
    done = call("--family", "llama")
    assert done.exit_code == 2
    assert "install mlx-conformance[transformers]" in done.output


def test_families_are_compared_for_real(tmp_path):
    pytest.importorskip("torch", reason="an optional extra: mlx-conformance[transformers]")
    target = tmp_path / "r.jsonl"
    done = call("--family", "llama", "--family", "gemma", "--jobs", "1", "--json", target)
    assert done.exit_code == 0, done.output
    found = {line["family"]: line for line in map(json.loads, target.read_text().splitlines())}
    assert found["llama"]["state"] == "agrees"
    assert found["gemma"]["state"] == "disagrees"
    assert found["gemma"]["proof"]["ratio"] < 2.5
