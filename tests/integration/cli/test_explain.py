"""``conformance explain``."""

import json

import pytest
from click.testing import CliRunner

from conformance.app.cli.main import group

CASE = "toy/broken/ragged/float32/0"


def test_a_case_that_fails_is_taken_apart(tmp_path):
    target = tmp_path / "why.jsonl"
    fault = "mlx_lm/C1.padding-subtracted-twice"
    arguments = ["explain", "mlx_lm/llama/ragged/float32/0", "--fault", fault]
    done = CliRunner().invoke(group, [*arguments, "--json", str(target)])
    assert done.exit_code == 0, done.output
    (line,) = target.read_text().splitlines()
    found = json.loads(line)
    assert found["fault"] == fault
    assert found["where"]["site"] == "cache:0:BatchKVCache:offset"
    # What pictures are drawn from: along the layers, and along each request's steps.
    assert all(set(layer) == {"path", "error", "noise"} for layer in found["layers"])
    assert [layer["path"] for layer in found["layers"]] == [f"model.layers.{n}" for n in range(4)]
    assert any(step["difference"] > 100 * step["noise"] for step in found["steps"])
    for part in (found["what"], "needs       batch, padding; with only these it fails"):
        assert part in done.output
    assert "begins at   cache:0:BatchKVCache:offset: request" in done.output


NAMED = ("explain", "mlx_lm/llama/ragged/float32/0", "--schedule", "one_beside_medium", "--fault")


@pytest.mark.nightly
def test_the_schedule_can_be_named(tmp_path):
    target = tmp_path / "why.jsonl"
    arguments = [*NAMED, "mlx_lm/B4.offset-of-row-0", "--json", str(target)]
    done = CliRunner().invoke(group, arguments)
    assert done.exit_code == 0, done.output
    assert json.loads(target.read_text())["schedule"] == "one_beside_medium"


def test_nothing_is_explained_of_a_named_schedule_that_is_right():
    done = CliRunner().invoke(group, [*NAMED, "mlx_lm/C1.padding-subtracted-twice"])
    assert done.exit_code == 2
    assert "nothing is wrong in schedule 'one_beside_medium', so there is" in done.output


@pytest.mark.nightly
def test_how_often_it_is_right(tmp_path):
    target = tmp_path / "hits.jsonl"
    arguments = [
        "explain",
        "--faults",
        "mlx_lm/B4.offset*",
        "--family",
        "llama",
        "--dtype",
        "bfloat16",
    ]
    done = CliRunner().invoke(group, [*arguments, "--json", str(target)])
    assert done.exit_code == 0, done.output
    assert "mlx_lm in bfloat16: 1 defects, 1 of them have a place" in done.output
    assert "the place that is named is right: 1 of 1 (100%)" in done.output
    found = json.loads(target.read_text())
    assert (found["hit"], found["dtype"]) == (True, "bfloat16")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("toy/calm/ragged/float32/0",), "there is nothing to explain"),
        (("toy/calm/raged/float32/0",), "did you mean toy/calm/ragged/float32/0?"),
        (("calm",), "'calm' is not a case id"),
        ((), "explain either one CASE_ID, or defects by --faults"),
        ((CASE, "--faults", "*"), "explain either one CASE_ID, or defects by --faults"),
        ((CASE, "--schedule", "none"), "no schedule 'none'; there are none"),
        (("--faults", "*", "--schedule", "x"), "explain either one CASE_ID, or defects by"),
        ((CASE,), "its findings are in no schedule that can be replayed"),
        ((CASE, "--fault", "toy/none"), "there is no fault toy/none"),
    ],
)
def test_what_cannot_be_explained_is_one_sentence(conformance, arguments, said):
    done = conformance("explain", *arguments)
    assert done.code == 2, done
    assert done.err.startswith("conformance: ")
    assert said in done.err
    assert "Traceback" not in done.err


def test_nothing_is_written_where_nothing_is_explained(conformance):
    done = conformance("explain", "toy/calm/ragged/float32/0", "--json", "why.jsonl")
    assert done.code == 2
    assert list(done.folder.glob("why*")) == []
