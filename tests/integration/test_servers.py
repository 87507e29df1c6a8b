"""The real servers, started and asked as a user does it; no process is left, however it ends.

By day a server of each library; the splitting one, and a fault that an audit puts in, are nightly.
"""

import os
import signal
import subprocess
import sys
import time

import psutil
import pytest
from click.testing import CliRunner

from conformance.app.cli.main import group

RUN = (sys.executable, "-m", "conformance", "run", "--jobs", "1", "--no-oracle-cache")


def run(*arguments, tmp_path):
    environment = {**os.environ, "TMPDIR": str(tmp_path), "COLUMNS": "120"}
    return subprocess.run(
        [*RUN, *arguments],
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def servers(folder):
    """Processes that work in a folder, as each server does in that of its checkpoint."""
    found = psutil.process_iter(["cwd"])
    return [p for p in found if str(p.info["cwd"] or "").startswith(str(folder))]


def begun_with(folder):
    """All processes of a run that was given this folder for temporary files, also forks."""
    found = psutil.process_iter(["environ", "status"])
    ended = psutil.STATUS_ZOMBIE
    return [
        p
        for p in found
        if (p.info["environ"] or {}).get("TMPDIR") == str(folder) and p.info["status"] != ended
    ]


def gone(folder, seconds=10.0):
    end = time.monotonic() + seconds
    while begun_with(folder) and time.monotonic() < end:
        time.sleep(0.05)
    return not begun_with(folder)


@pytest.mark.parametrize(
    ("engine", "family", "scenario"),
    [
        pytest.param("mlx_lm_server", "llama", "served_together", marks=pytest.mark.nightly),
        pytest.param(
            *("mlx_lm_server_pipeline", "deepseek_v32", "served_together"),
            marks=pytest.mark.nightly,
        ),
        ("mlx_vlm_server", "qwen2_vl", "served_media"),
    ],
)
def test_a_librarys_server_is_exact(engine, family, scenario, tmp_path):
    done = run("--engine", engine, "--family", family, "--scenario", scenario, tmp_path=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "OK: 1 case" in done.stdout
    assert gone(tmp_path)
    assert not list(tmp_path.glob("conformance-server-*"))


def test_what_is_known_to_be_wrong_is_expected_and_right_once_mended(tmp_path):
    where = ("--family", "llama", "--scenario", "served_alone", "--scenario", "served_together")
    done = run("--engine", "mlx_lm_server", *where, tmp_path=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "OK: 2 cases" in done.stdout
    assert "1 right once mended" in done.stdout
    assert gone(tmp_path)


@pytest.mark.nightly
def test_a_fault_in_the_servers_own_process_is_killed(tmp_path):
    chosen = ("--engine", "mlx_lm_server", "--family", "llama", "--fault", "S7.*")
    done = subprocess.run(
        [sys.executable, "-m", "conformance", "audit", "power", "--jobs", "1", *chosen],
        env={**os.environ, "TMPDIR": str(tmp_path), "COLUMNS": "120"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 of 1 pairs of fault and family were killed" in done.stdout, done.stdout
    assert gone(tmp_path)


@pytest.mark.parametrize(
    "number",
    [
        *(pytest.param(n, marks=pytest.mark.nightly) for n in (signal.SIGINT, signal.SIGTERM)),
        signal.SIGKILL,  # nothing of the run's own can end it then
    ],
)
def test_no_server_is_left_of_an_interrupted_run(number, tmp_path):
    arguments = ("--engine", "mlx_lm_server", "--family", "llama", "--scenario", "served_leaves")
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    begun = subprocess.Popen(
        [*RUN, *arguments], env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    end = time.monotonic() + 240
    while not servers(tmp_path) and time.monotonic() < end:
        time.sleep(0.1)
    assert servers(tmp_path)
    assert begun_with(tmp_path)
    begun.send_signal(number)
    begun.wait(60)
    assert gone(tmp_path)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("--engine", "http"), "add --url"),
        (("--engine", "http", "--url", "http://127.0.0.1:9"), "no server answers at http://127"),
        (("--engine", "http", "--url", "https://example.org"), "--remote allows it"),
        (("--engine", "http", "--url", "nowhere"), "is no URL of a server"),
        (("--engine", "mlx_lm", "--url", "http://127.0.0.1:9"), "--url is about --engine http"),
        (
            ("--engine", "mlx_lm", "--remote"),
            "--remote, --requests and --not-offered are about --url",
        ),
    ],
)
def test_a_mistake_is_one_sentence(arguments, sentence, monkeypatch):
    monkeypatch.setenv("CONFORMANCE_SERVER", "")  # the command sets it
    done = CliRunner().invoke(group, ["run", "--jobs", "1", *arguments])
    assert done.exit_code == 2
    assert sentence in done.stderr
    assert "Traceback" not in done.stderr
