"""The search for a Chromium."""

import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).with_name("chromium.py")


def run(**environment):
    return subprocess.run(
        [sys.executable, SCRIPT], capture_output=True, text=True, env=environment, check=False
    )


def program(path):
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    return path


def test_one_on_the_path_is_found(tmp_path):
    found = program(tmp_path / "google-chrome")
    assert run(PATH=str(tmp_path)).stdout.strip() == str(found)


def test_the_named_one_goes_first(tmp_path):
    program(tmp_path / "chromium")
    mine = program(tmp_path / "mine")
    assert run(PATH=str(tmp_path), CHROMIUM=str(mine)).stdout.strip() == str(mine)


def test_a_named_one_that_is_not_there_is_reported(tmp_path):
    program(tmp_path / "chromium")
    ended = run(PATH=str(tmp_path), CHROMIUM=str(tmp_path / "no"))
    assert ended.returncode == 1
    assert "install it" in ended.stderr
