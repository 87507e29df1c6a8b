"""``conformance new family``, with the real libraries."""

import json
import re
import shutil
from functools import partial
from pathlib import Path

import pytest
from click.testing import CliRunner

from conformance.app.cli.main import group
from conformance.app.cli.new import family
from conformance.scenarios import LADDER
from conformance.tools.new_family import validation

TESTS = Path(__file__).parents[3]
CONFIGS = TESTS / "configs"
# Attention without what a batch needs: every row sees the padding of its neighbours.
BREACH = ("mask=mask)", 'mask="causal" if length > 1 else None)')


@pytest.fixture
def conformance(conformance):
    """The command with the libraries that are installed, not with toys."""
    return partial(conformance, PYTHONPATH="", TRANSFORMERS_VERBOSITY="error")


@pytest.fixture
def made(conformance, tmp_path, monkeypatch):
    """A family of a model: in this process with some rungs, or with all as a command."""

    def make(model, rungs):
        call = ("new", "family", model, "--out", "mine.json")
        if not rungs:
            done = conformance(*call)
            return done.code, done.out
        monkeypatch.chdir(tmp_path)
        left_out = {scenario.name for scenario in LADDER} - set(rungs)
        monkeypatch.setattr(validation, "COSTLY", left_out)
        monkeypatch.setattr(family, "in_processes", lambda work, items, **_: map(work, items))
        done = CliRunner().invoke(group, list(map(str, call)), env={"COLUMNS": "100"})
        return done.exit_code, done.stdout

    return make


@pytest.mark.parametrize(
    ("rungs", "failed"),
    [
        (("identical", "ragged", "traffic"), "1 of 4"),
        pytest.param((), "17 of 23", marks=pytest.mark.nightly),
    ],
)
def test_a_model_that_ignores_the_mask_fails_the_ladder(conformance, made, tmp_path, rungs, failed):
    source = (CONFIGS / "small_model.py").read_text()
    assert source.count(BREACH[0]) == 1
    model = tmp_path / "unmasked.py"
    model.write_text(source.replace(*BREACH))
    code, out = made(model, rungs)
    assert code == 1, out
    lines = {line.split()[0]: line for line in out.splitlines() if line.startswith("  ")}
    assert lines["batch_of_one"].split() == ["batch_of_one", "exact"]
    assert lines["ragged"].split()[:2] == ["ragged", "diverged,"]
    assert "NOT EXPECTED" in lines["ragged"]
    assert "diverged: mlx_lm/mine/ragged/float32/0" in out
    assert out.splitlines()[-1].startswith(f"FAILED: {failed} rungs fail, in ")
    assert "not run, as a rung below it fails" in lines["traffic"]
    assert "inputs that matter, from the rung: cache position (identical)" in out
    assert "hidden_size: 2048 was assumed" in out
    assert re.search(r"^mine: \d+ cases? fails?, (first )?at `ragged`: ", out, re.M)
    named = re.escape(str(tmp_path / "mine.json"))
    for command in ("show", "explain", "repro"):
        wanted = rf"^  conformance {command} --family-file {named} mlx_lm/mine/ragged/float32/0$"
        assert re.search(wanted, out, re.M)
    assert "which inputs do not matter is said once all rungs pass" in out
    assert "the model never reads it" not in out
    assert (tmp_path / "unmasked.py").read_text() == source.replace(*BREACH)
    if not rungs:
        again = conformance("show", "--family-file", "mine.json", "mlx_lm/mine/ragged/float32/0")
        assert again.out.startswith("diverged:"), again


def test_a_model_that_sees_is_made_from_a_folder(conformance):
    done = conformance("new", "family", CONFIGS / "Qwen2.5-VL-7B-Instruct", "--no-ladder", "--json")
    assert done.code == 0, done
    report = json.loads(done.out)
    assert [r["scenario"] for r in report["results"]] == ["repeat", "batch_of_one"]
    assert report["lost"] == {}
    assert any(
        "'<|vision_start|><|image_pad|><|vision_end|>' marks one" in note
        for note in report["notes"]
    )
    made = json.loads((done.folder / "Qwen2.5-VL-7B-Instruct.json").read_text())
    assert made["conformance"]["modalities"] == ["text", "image"]
    assert sum(made["rope_scaling"]["mrope_section"]) == 8


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('{"model_type": "qwen3", ', "mine.json: not JSON, line 1"),
        ('{"model_type": "qwen3"}', "mine.json: mlx_lm: the config lacks 'hidden_size'"),
    ],
)
def test_what_cannot_be_built_is_one_sentence_and_writes_nothing(content, message, conformance):
    folder = conformance("--version").folder
    (folder / "mine.json").write_text(content)
    done = conformance("new", "family", "mine.json", "--out", "out.json")
    assert done.code == 2, done
    assert done.err.startswith(f"conformance: {message}")
    assert len(done.err.splitlines()) == 1
    assert [path.name for path in folder.iterdir()] == ["mine.json"]


def test_a_file_that_is_there_is_not_written_over(conformance):
    folder = conformance("--version").folder
    shutil.copy(CONFIGS / "Qwen3-8B.json", folder)
    done = conformance("new", "family", "Qwen3-8B.json")
    assert done.code == 2, done
    assert "Qwen3-8B.json: exists already; name another file with --out" in done.err


def test_a_config_becomes_a_family_and_force_replaces_it(conformance):
    make = ("new", "family", CONFIGS / "Qwen3-8B.json", "--out", "mine.json", "--no-ladder")
    assert conformance(*make).code == 0
    assert conformance(*make).code == 2
    done = conformance(*make, "--force")
    assert done.code == 0, done
    assert done.out.splitlines()[-1].startswith("OK: 2 rungs, all as expected")
    made = json.loads((done.folder / "mine.json").read_text())
    assert (made["hidden_size"], made["conformance"]["module"]) == (64, "qwen3")
    assert "| hidden_size | 4096 | 64 |" in (done.folder / "mine.report.md").read_text()
    assert {path.name for path in done.folder.iterdir()} == {"mine.json", "mine.report.md"}


def unrotated(text):
    """The model without positions: what its cache says about them is never read."""
    for line in (
        "        offset = cache.offset if cache is not None else 0\n",
        "        q, k = self.rope(q, offset=offset), self.rope(k, offset=offset)\n",
    ):
        assert text.count(line) == 1
        text = text.replace(line, "")
    return text


@pytest.mark.parametrize("ladder", [False, pytest.param(True, marks=pytest.mark.nightly)])
def test_a_model_beside_its_config_climbs_the_ladder_and_inputs_that_never_matter_are_named(
    conformance, tmp_path, ladder
):
    sizes = {"hidden_size": 256, "num_hidden_layers": 4, "intermediate_size": 512}
    heads = {"num_attention_heads": 8, "num_key_value_heads": 4, "rms_norm_eps": 1e-5}
    config = {"model_type": "novel", "vocab_size": 1000, **sizes, **heads}
    (tmp_path / "config.json").write_text(json.dumps(config))
    call = ("new", "family", "config.json", "--out", "mine.json")
    assert "give its Python file, with Model and ModelArgs" in conformance(*call).err
    (tmp_path / "novel.py").write_text(unrotated((CONFIGS / "small_model.py").read_text()))
    refused = conformance(*call)
    assert refused.code == 2, refused
    assert "--trust-remote-code lets novel.py, which is beside it, be run" in refused.err
    assert not (tmp_path / "mine.json").exists()
    done = conformance(*call, "--trust-remote-code", *([] if ladder else ["--no-ladder"]))
    assert ", module novel" in done.out
    assert done.code == 1, done
    assert done.out.splitlines()[-1].startswith("FAILED: too insensitive to prove anything, in ")
    assert "NOT EXPECTED" not in done.out
    if not ladder:
        return
    assert " traffic          exact" in done.out
    text = (tmp_path / "mine.report.md").read_text()
    assert "| ragged | exact |" in text
    assert "- inputs that matter, from the rung: mask (ragged)\n" in text
    assert (
        "- no rung made these matter: lengths (no cache of this model has it), "
        "cache position (the model never reads it)\n" in text
    )


def test_a_model_that_kills_its_process_is_reported(conformance, tmp_path):
    source = (CONFIGS / "small_model.py").read_text()
    deadly = source.replace("rows, length", "os.abort()\n        rows, length", 1)
    (tmp_path / "fatal.py").write_text(deadly.replace("import mlx", "import os\n\nimport mlx", 1))
    done = conformance("new", "family", "fatal.py", "--out", "out.json")
    assert done.code == 2, done
    assert "its process crashed while the tiny model was built or run" in done.err.splitlines()[-1]
    assert [path.name for path in tmp_path.iterdir() if path.suffix != ".py"] == []
