"""``conformance golden export`` and ``golden judge``, with foreign programs in between."""

import json
import os
from pathlib import Path

import pytest
from forked import run_python, start_python

EXAMPLES = Path(__file__).parents[2] / "examples"
SCENARIOS = ("ragged", "staggered", "cancelled")


def call(*arguments):
    """Run Python and wait for its end; the libraries' chatter is turned off."""
    environment = {**os.environ, "TRANSFORMERS_VERBOSITY": "error", "PYTHONPATH": ""}
    return run_python(arguments, cwd=Path.cwd(), env=environment, timeout=300)


def command(*arguments):
    return call("-c", "from conformance.app.cli import main; main()", *arguments)


def verdicts(trace, vectors):
    """The verdict of each scenario, and the exit code of the judge."""
    done = command("golden", "judge", trace, "--vectors", vectors, "--json")
    assert done.returncode in (0, 1), done.stderr
    results = [json.loads(line) for line in done.stdout.splitlines()]
    return {result["scenario"]: result["verdict"] for result in results}, done.returncode


@pytest.fixture(scope="module")
def vectors(tmp_path_factory):
    """Exported vectors of a real family."""
    folder = tmp_path_factory.mktemp("export") / "vectors"
    chosen = [word for name in SCENARIOS for word in ("--scenario", name)]
    done = command("golden", "export", folder, "--family", "llama", *chosen)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("llama: 3 scenarios\n")
    return folder


@pytest.fixture(scope="module")
def trace(vectors, tmp_path_factory):
    """The trace of a program that knows mlx-lm and the files of the vectors, and nothing of us."""
    path = tmp_path_factory.mktemp("trace") / "trace.jsonl"
    program = EXAMPLES / "mlx_lm_engine" / "decode.py"
    assert "conformance" not in [
        line.split()[1].split(".")[0]
        for line in program.read_text().splitlines()
        if line.startswith(("import ", "from "))
    ]
    done = call(program, vectors, path)
    assert done.returncode == 0, done.stderr
    return path


def test_a_foreign_engine_that_is_right(vectors, trace):
    assert verdicts(trace, vectors) == (dict.fromkeys(SCENARIOS, "exact"), 0)


def test_what_it_says(vectors, trace):
    done = command("golden", "judge", trace, "--vectors", vectors)
    assert done.returncode == 0
    assert done.stdout.splitlines()[-1] == "OK: 3 cases"
    assert "not played" not in done.stderr


def test_judging_needs_no_model_library():
    program = (
        "import sys, conformance.app.cli.golden.judge\n"
        "print({'mlx', 'mlx_lm', 'mlx_vlm', 'transformers', 'torch'} & set(sys.modules))"
    )
    done = start_python(["-c", program], cwd=Path.cwd(), env={**os.environ}, timeout=300)
    assert done.stdout == "set()\n", done


def changed(trace, path, change):
    """A trace in which ``change`` was made to the first token record that it takes."""
    lines = [json.loads(line) for line in trace.read_text().splitlines()]
    index = next(i for i, line in enumerate(lines) if line["record"] == "token")
    change(lines, index)
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def another_token(lines, index):
    lines[index]["token"] = lines[index]["top"][5][0]


def test_a_message_has_five_parts(vectors, trace, tmp_path):
    path = changed(trace, tmp_path / "t.jsonl", another_token)
    done = command("golden", "judge", path, "--vectors", vectors)
    assert done.returncode == 1
    assert done.stdout.startswith("diverged: plain_mlx_lm/llama/ragged/float32/0\n  what:     ")
    assert f"rerun:    conformance golden judge {path} --vectors {vectors}" in done.stdout
    assert done.stdout.splitlines()[-1] == "FAILED: 1 of 3 cases"


def refused(done):
    """The one sentence of an error that the user can mend."""
    assert done.returncode == 2, done
    (line,) = done.stderr.splitlines()
    assert "Traceback" not in line
    return line


def test_damaged_weights(vectors, trace):
    path = vectors / "llama" / "model" / "model.safetensors"
    right = path.read_bytes()
    path.write_bytes(right[:-1] + bytes([right[-1] ^ 1]))
    try:
        done = command("golden", "judge", trace, "--vectors", vectors)
    finally:
        path.write_bytes(right)
    assert "model.safetensors: its digest is not the one in manifest.json" in refused(done)


@pytest.mark.parametrize(
    ("plant", "verdict"),
    [(None, "exact"), ("no-mask", "diverged"), ("no-position-ids", "diverged")],
)
def test_an_engine_on_another_runtime(vectors, tmp_path, plant, verdict):
    """Hugging Face transformers on torch, left-padded; right, and with a classic defect in it."""
    pytest.importorskip("torch", reason="the extra 'transformers' is not installed")
    path = tmp_path / "trace.jsonl"
    planted = ["--plant", plant] if plant else []
    done = call(EXAMPLES / "torch_engine" / "decode.py", vectors, path, *planted)
    assert done.returncode == 0, done.stderr
    assert "llama/staggered/short_into_long left out: requests come or go" in done.stdout
    assert verdicts(path, vectors) == ({"ragged": verdict}, 1 if plant else 0)
