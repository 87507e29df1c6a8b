"""The engines play the ladder with the known defects, and each defect's script still shows it."""

import subprocess
import sys
from pathlib import Path

import conformance_vllm_mlx
import pytest

from conformance.checks.expectations import load_expectations

PACKAGE = Path(__file__).parents[1]
KNOWN = Path(conformance_vllm_mlx.__file__).parent / "known"
SCRIPTS = sorted(p.name for p in (PACKAGE / "scripts").glob("*.py") if p.name != "tiny_llama.py")


def conformance(*arguments):
    return subprocess.run(
        [sys.executable, "-m", "conformance", *arguments],
        capture_output=True,
        text=True,
        timeout=800,
        check=False,
        cwd=PACKAGE,
    )


@pytest.mark.parametrize("engine", ["vllm_mlx", "vllm_mlx_paged"])
def test_two_rows_give_what_each_gives_alone(engine):
    done = conformance("smoke", "--engine", engine, "--family", "llama")
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("engine", ["vllm_mlx", "vllm_mlx_paged"])
def test_the_ladder_shows_the_known_defects_and_no_other(engine, tmp_path):
    file = tmp_path / "results.jsonl"
    chosen = ["--engine", engine, "--family", "llama", "--jobs", "1", "--json", str(file)]
    done = conformance("run", *chosen)
    assert done.returncode == 0, done.stdout + done.stderr
    rungs = [line for line in file.read_text().splitlines() if '"verdict"' in line]
    assert len(rungs) >= 18


@pytest.mark.parametrize("script", SCRIPTS)
def test_a_script_shows_its_defect(script):
    done = subprocess.run(
        [sys.executable, PACKAGE / "scripts" / script],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert "DEFECT:" in done.stderr, done.stdout + done.stderr


def test_every_known_defect_has_its_script():
    own = {e.id for e in load_expectations().defects}
    known = [e for e in load_expectations(None, [KNOWN]).defects if e.id not in own]
    assert known
    assert all((PACKAGE / entry.script).is_file() for entry in known)
