"""``pytest -n 0`` on the suite: the exit code comes from a parent that saw the end."""

import os
import signal
import subprocess
import sys
import time

import psutil
import pytest

SUITE = ("-m", "pytest", "-p", "no:cacheprovider", "--pyargs", "conformance.suite")
TOYS = ("-n", "0", "--conformance-engine", "toy")


def test_a_model_that_exits_by_0_fails_the_run(suite):
    done = suite("-n", "0", "--conformance-json", "r.jsonl", TOY_FAMILIES="quitting")
    assert done.code == 70, done
    last = done.err.splitlines()[-1]
    assert "` ended before its work was done (exit status 0): code of a model or a li" in last
    assert done.verdicts("r.jsonl.partial") == {"quitting/repeat": "exact"}


def test_what_a_model_does_when_python_ends_changes_no_exit_code(suite, tmp_path):
    """Conftest files are read once, in the process that runs the cases."""
    (tmp_path / "conftest.py").write_text(
        "import os\nwith open('read', 'a') as file:\n    print(os.getpid(), file=file)\n"
    )
    log = tmp_path / "log"
    done = suite("-n", "0", TOY_FAMILIES="late", TOY_LOG=str(log))
    assert done.code == 1, done
    assert "1 failed, 3 passed" in done.out
    assert done.err == ""
    assert (tmp_path / "read").read_text().split() == log.read_text().split()[:1]


def test_a_mistake_in_the_options_needs_no_sentence_more(suite):
    done = suite("--conformance-family", "nope")
    assert done.code == pytest.ExitCode.USAGE_ERROR
    assert "code of a model" not in done.err


@pytest.mark.parametrize(
    ("number", "group", "code"),
    [
        (signal.SIGINT, True, 2),  # as by Ctrl-C in a terminal
        pytest.param(signal.SIGINT, False, 2, marks=pytest.mark.nightly),
        (signal.SIGTERM, False, 128 + signal.SIGTERM),
        (signal.SIGKILL, False, -signal.SIGKILL),
    ],
)
def test_a_signal_reaches_it_once(environment, tmp_path, number, group, code):
    log = tmp_path / "log"
    process = subprocess.Popen(
        [sys.executable, *SUITE, *TOYS],
        cwd=tmp_path,
        env={**environment, "TOY_FAMILIES": "stuck", "TOY_LOG": str(log)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
        text=True,
    )
    until = time.monotonic() + 60
    while not (log.exists() and "ragged" in log.read_text()):
        assert time.monotonic() < until
        time.sleep(0.02)
    children = psutil.Process(process.pid).children(recursive=True)
    (os.killpg if group else os.kill)(process.pid, number)
    out, _ = process.communicate(timeout=60)
    assert process.returncode == code, out
    assert "code of a model" not in out
    if number == signal.SIGINT:
        assert out.count("= no tests ran") + out.count("= 1 passed") == 1, out
    _, alive = psutil.wait_procs(children, timeout=20)
    assert not alive


WAIVING = {
    "mark": """
import pytest
def pytest_collection_modifyitems(items):
    for item in items:
        item.add_marker(pytest.mark.xfail(strict=False))
""",
    "report": """
import pytest
@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item):
    report = yield
    report.outcome = "passed"
    return report
""",
}


@pytest.mark.parametrize("by", WAIVING)
def test_no_hook_of_others_makes_an_unexpected_verdict_pass(suite, tmp_path, by):
    (tmp_path / "waiving.py").write_text(WAIVING[by])
    done = suite("-n", "0", "-p", "waiving", TOY_FAMILIES="broken")
    assert "cases not as expected" in done.out, done
    assert done.code == 1, done
