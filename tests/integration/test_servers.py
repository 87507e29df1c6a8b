"""The real servers, started and asked as a user does it; no process is left, however it ends."""

import os
import signal
import subprocess
import sys
import time

import psutil
import pytest

RUN = (sys.executable, "-m", "conformance", "run", "--jobs", "1", "--no-oracle-cache")


def run(*arguments, tmp_path):
    environment = {**os.environ, "TMPDIR": str(tmp_path), "COLUMNS": "120"}
    return subprocess.run(
        [*RUN, *arguments],
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def servers(folder):
    """Processes whose command has something of a folder."""
    found = psutil.process_iter(["cmdline"])
    return [p for p in found if any(str(folder) in word for word in p.info["cmdline"] or ())]


def gone(folder, seconds=10.0):
    end = time.monotonic() + seconds
    while servers(folder) and time.monotonic() < end:
        time.sleep(0.05)
    return not servers(folder)


@pytest.mark.parametrize(
    ("engine", "family", "scenario"),
    [
        ("mlx_lm_server", "llama", "served_together"),
        ("mlx_vlm_server", "qwen2_vl", "served_media"),
    ],
)
def test_a_librarys_server_is_exact(engine, family, scenario, tmp_path):
    done = run("--engine", engine, "--family", family, "--scenario", scenario, tmp_path=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "OK: 1 case" in done.stdout
    assert gone(tmp_path)
    assert not list(tmp_path.glob("conformance-server-*"))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_no_server_is_left_of_an_interrupted_run(number, tmp_path):
    arguments = ("--engine", "mlx_lm_server", "--family", "llama", "--scenario", "served_leaves")
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    begun = subprocess.Popen(
        [*RUN, *arguments], env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    end = time.monotonic() + 60
    while not servers(tmp_path) and time.monotonic() < end:
        time.sleep(0.1)
    assert servers(tmp_path)
    begun.send_signal(number)
    begun.wait(30)
    assert gone(tmp_path)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("--engine", "http"), "add --url"),
        (("--engine", "http", "--url", "http://127.0.0.1:9"), "no server answers at http://127"),
        (("--engine", "http", "--url", "https://example.org"), "--remote allows it"),
        (("--engine", "http", "--url", "nowhere"), "is no URL of a server"),
        (("--engine", "mlx_lm", "--url", "http://127.0.0.1:9"), "--url is about --engine http"),
        (("--engine", "mlx_lm", "--remote"), "--remote and --requests are about --url"),
    ],
)
def test_a_mistake_is_one_sentence(arguments, sentence, tmp_path):
    done = run(*arguments, tmp_path=tmp_path)
    assert done.returncode == 2
    assert sentence in done.stderr
    assert "Traceback" not in done.stderr
