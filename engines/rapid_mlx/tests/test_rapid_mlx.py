"""The server is started and asked, and each defect's script still shows it."""

import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1]
SCRIPTS = sorted(p.name for p in (PACKAGE / "scripts").glob("*.py") if p.name != "tiny_server.py")
OF_ENGINE = ("--engine", "rapid_mlx_server", "--family", "llama", "--jobs", "1")
RIGHT = ("served_together", "served_ends", "served_slots", "served_leaves")


def test_what_it_serves_right():
    chosen = [option for name in RIGHT for option in ("--scenario", name)]
    done = subprocess.run(
        [sys.executable, "-m", "conformance", "run", *OF_ENGINE, *chosen],
        capture_output=True,
        text=True,
        timeout=800,
        check=False,
        cwd=PACKAGE,
    )
    assert done.returncode == 0, done.stdout + done.stderr


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
