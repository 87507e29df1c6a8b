"""The server is asked, with the known defects, and each defect's script still shows it."""

import subprocess
import sys
from pathlib import Path

import conformance_mlx_openai_server
import pytest

from conformance.checks.expectations import load_expectations

PACKAGE = Path(__file__).parents[1]
KNOWN = Path(conformance_mlx_openai_server.__file__).parent / "known"
SCRIPTS = sorted(p.name for p in (PACKAGE / "scripts").glob("*.py") if p.name != "tiny_server.py")
OF_ENGINE = ("--engine", "mlx_openai_server", "--family", "llama", "--jobs", "1")


def test_what_it_serves_shows_the_known_defects_and_no_other(tmp_path):
    file = tmp_path / "results.jsonl"
    done = subprocess.run(
        [sys.executable, "-m", "conformance", "run", *OF_ENGINE, "--json", str(file)],
        capture_output=True,
        text=True,
        timeout=800,
        check=False,
        cwd=PACKAGE,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert file.read_text().count('"verdict"') >= 11


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
