"""``conformance repro``, on real cases: what it writes must run without this project."""

import ast
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner
from forked import run_python

from conformance.app.cli.main import group
from conformance.tools.repro.refusing import Reason

CONFIGS = Path(__file__).parents[1] / "configs"
CONFIG = {
    "model_type": "small",
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "intermediate_size": 96,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "rms_norm_eps": 1e-05,
    "vocab_size": 256,
}
CASE = "mlx_lm/mamba/ragged/float32/0"


@pytest.fixture
def repro(tmp_path):
    def run(*arguments):
        # As it runs the scripts that it writes, they must not find this project by a variable.
        given = ("-m", "conformance", "repro", *arguments)
        return run_python(given, cwd=tmp_path, env={**os.environ, "PYTHONPATH": ""}, timeout=200)

    return run


def imported(text):
    nodes = list(ast.walk(ast.parse(text)))
    names = {a.name for node in nodes if isinstance(node, ast.Import) for a in node.names}
    names |= {node.module for node in nodes if isinstance(node, ast.ImportFrom)}
    return {name.partition(".")[0] for name in names} - sys.stdlib_module_names


def test_the_script_is_short_and_shows_the_defect(repro, tmp_path):
    done = repro(CASE, "--out", "repro.py", "--seconds", "3")
    assert done.returncode == 0, done.stderr
    text = (tmp_path / "repro.py").read_text()
    assert text.count("\n") <= 60
    assert imported(text) == {"mlx", "mlx_lm"}
    assert "mlx_lm/models/mamba.py:" in text
    shown = subprocess.run(
        [sys.executable, "-I", "repro.py"],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        check=False,
    )
    assert shown.returncode == 1, shown.stderr
    assert "alone" in shown.stdout
    assert "nats apart" in shown.stdout
    # Prompts of one length have no padding: the same script must find nothing wrong then.
    tree = ast.parse(text)
    requests = assigned(tree, "REQUESTS")
    requests.value = ast.parse("{'a': ([5, 6, 7], 2), 'b': ([8, 9, 10], 2)}", mode="eval").body
    right = subprocess.run(
        [sys.executable, "-I", "-c", ast.unparse(tree)],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        check=False,
    )
    assert right.returncode == 0, right.stdout + right.stderr


@pytest.mark.nightly
def test_as_a_method_of_a_test_case(repro):
    done = repro(CASE, "--unittest", "--seconds", "3")
    assert done.returncode == 0, done.stderr
    (case,) = [n for n in ast.parse(done.stdout).body if isinstance(n, ast.ClassDef)]
    assert [node.name for node in case.body] == ["test_mamba_ragged"]
    assert "FAILED (failures=1)" in done.stderr


def assigned(tree, name):
    return next(
        node
        for node in tree.body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == name
    )


@pytest.mark.nightly
def test_prompts_that_batch_generate_embeds_together(repro, tmp_path):
    """Alone there is no padding to count: then the same script must find nothing wrong."""
    case = "mlx_vlm_batch_generate/qwen2_vl/ragged/float32/0"
    done = repro(case, "--out", "repro.py", "--seconds", "3")
    assert done.returncode == 0, done.stderr
    tree = ast.parse((tmp_path / "repro.py").read_text())
    assert imported(ast.unparse(tree)) == {"mlx", "mlx_vlm"}
    assert "nats apart" in done.stderr
    requests, group = assigned(tree, "REQUESTS"), assigned(tree, "group")
    requests.value = ast.parse("{'a': ([5, 6, 7], 2), 'b': ([8, 9, 10], 2)}", mode="eval").body
    group.value = ast.parse("['a', 'b']", mode="eval").body
    right = subprocess.run(
        [sys.executable, "-I", "-c", ast.unparse(tree)],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        check=False,
    )
    assert right.returncode == 0, right.stdout + right.stderr


def test_the_script_of_a_known_defect_is_the_same_each_time(repro, tmp_path):
    known = "recurrent-gemma-padded-state"
    first = repro(known, "--out", "repro.py")
    assert first.returncode == 0, first.stderr
    text = (tmp_path / "repro.py").read_text()
    assert imported(text) == {"mlx", "mlx_lm"}
    assert "mlx_lm/models/recurrent_gemma.py:" in text
    assert "nats apart" in first.stderr
    # Of another engine, whose entry says that this script shows it, too.
    assert repro(f"reference-{known}").stdout == text


@pytest.mark.nightly
def test_a_sweep_goes_on_from_its_own_table(repro, tmp_path):
    known = ("--known", "finished-caches-hold-the-batch", "--to", "found")
    done = repro(*known)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 of 1 known defects shown" in done.stdout
    script = (tmp_path / "found" / "finished_caches_hold_the_batch.py").read_text()
    assert imported(script) == {"mlx", "mlx_lm"}
    assert "bytes and held" in done.stdout
    table = tmp_path / "found" / "table.jsonl"
    table.write_text(table.read_text().replace("bytes and held", "bytes and kept"))
    assert "bytes and kept" in repro(*known).stdout
    table.write_text("nothing\n")
    refused = repro(*known)
    assert refused.returncode == 2
    assert "line 1 is not a line of its table" in refused.stderr


ENTRY = """
[[defect]]
id = "{name}"
families = ["{family}"]
versions = ">0"
where = "mlx_lm/generate.py:1"
why = "as planted"
script = "docs/defects/planted.py"
verdicts = {{ ragged = "crash" }}
"""


def test_a_defect_that_ends_its_process_is_reported_and_the_others_are_tried(repro, tmp_path):
    source = (CONFIGS / "small_model.py").read_text()
    deadly = source.replace("rows, length, _ = x.shape", "rows, length, _ = deadly(x).shape")
    crash = "\n\ndef deadly(x):\n    return x if len(x) == 1 else __import__('os').abort()\n"
    (tmp_path / "small_model.py").write_text(deadly + crash)
    facts = {"library": "mlx_lm", "module": "small", "tokens": [1, 240]}
    facts |= {"model_file": "small_model.py", "notes": "A batch ends the process."}
    (tmp_path / "small.json").write_text(json.dumps(CONFIG | {"conformance": facts}))
    (tmp_path / "known").mkdir()
    entries = [ENTRY.format(name=n, family=f) for n, f in (("calm", "llama"), ("deadly", "small"))]
    (tmp_path / "known" / "mlx_lm.toml").write_text('package = "mlx-lm"' + "".join(entries))
    options = ("--expectations", "known", "--family-file", "small.json", "--to", "found")
    done = repro("--known", "*", *options)
    assert done.returncode == 1, done.stderr
    assert "Traceback" not in done.stderr
    table = (tmp_path / "found" / "table.jsonl").read_text().splitlines()
    groups = {row["entry"]: row["group"] for row in map(json.loads, table)}
    assert groups == {"calm": Reason.GREEN, "deadly": Reason.CRASHED}


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["mlx_lm/llama/repeat/float32/0"], "no schedule of it fails"),
        (["mlx_lm/llama/raged/float32/0"], "there is no case"),
        ([CASE, "--schedule", "no_such"], "there is no schedule 'no_such'"),
        (["--known", "no-such-defect"], "no known defect matches"),
        (["no-such-defect"], "no known defect matches"),
        (["mamba*"], "--known takes globs"),
        (["no-such-defect", "--issue"], "no known defect matches"),
        (["phi3small-masks-rows"], "written by hand: docs/defects/mlx_vlm/phi3small_masks_rows.py"),
    ],
)
def test_what_no_script_can_hold_is_one_sentence(arguments, words):
    done = CliRunner().invoke(group, ["repro", *arguments])
    assert done.exit_code == 2
    (line,) = done.stderr.splitlines()
    assert line.startswith("conformance: ")
    assert words in line


def test_the_text_of_an_issue_has_a_script_that_runs_and_the_effect_of_the_mend(repro, tmp_path):
    done = repro("bounded-cache-keep", "--issue", "--out", "issue.md")
    assert done.returncode == 0, done.stderr
    text = (tmp_path / "issue.md").read_text()
    assert text.endswith("With it the case is exact.\n")
    (script,) = re.findall(r"```python\n(.*?)```", text, re.S)
    assert imported(script) == {"mlx", "mlx_lm"}
    (tmp_path / "script.py").write_text(script)
    shown = subprocess.run(
        [sys.executable, "script.py"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert shown.returncode == 1
    (said,) = re.findall(r"It prints:\n\n```text\n(.*?)```", text, re.S)
    assert shown.stdout.splitlines() == said.splitlines()
