"""A parent that saw the end has the exit code; a crash is a sentence, and no process is left."""

import os
import signal
import subprocess
import sys
import time

import psutil
import pytest

CASE = "toy/fatal/ragged/float32/0"
STUCK = "toy/stuck/ragged/float32/0"
SENTENCE = "conformance: `conformance {}` {}: code of a model or a library can do that"
CRASHED = "crashed before its work was done (signal SIGSEGV)"


@pytest.mark.parametrize("command", ["show", "explain"])
def test_a_case_that_crashes_the_process_ends_in_a_sentence(conformance, command):
    done = conformance(command, CASE)
    assert done.code == 128 + signal.SIGSEGV, done
    last = done.err.splitlines()[-1]
    assert last.startswith(SENTENCE.format(f"{command} {CASE}", CRASHED))
    assert "where cases are run in worker processes" in last
    assert "Fatal Python error: Segmentation fault" in done.err
    assert 'toy_plugin.py", line' in done.err, "where it was"


@pytest.mark.parametrize(
    ("arguments", "code"),
    [(("toy/calm/ragged/float32/0",), 0), (("toy/broken/ragged/float32/0",), 1), (("no",), 2)],
)
def test_every_other_end_is_the_command_s_own(conformance, arguments, code):
    done = conformance("show", *arguments)
    assert done.code == code, done
    assert "code of a model" not in done.err


@pytest.mark.parametrize("jobs", ["1", "2"])
def test_a_model_that_exits_by_0_fails_the_run(toy_run, jobs):
    done = toy_run("--jobs", jobs, "--json", "r.jsonl", TOY_FAMILIES="quitting")
    if jobs == "2":
        assert done.code == 1, done
        assert done.verdicts()["quitting/ragged"] == "crash"
        return
    assert done.code == 70, done
    ended = "ended before its work was done (exit status 0)"
    assert f"` {ended}: code of a model or a library can do that" in done.err.splitlines()[-1]
    assert done.verdicts("r.jsonl.partial") == {"quitting/repeat": "exact"}


def test_what_a_model_does_when_python_ends_changes_no_exit_code(toy_run):
    done = toy_run(TOY_FAMILIES="late")
    assert done.code == 1, done
    assert "FAILED: 1 of 3 cases not as expected" in done.out
    assert "code of a model" not in done.err


def test_any_command_whose_process_exits_by_0_fails(conformance):
    done = conformance("show", "toy/quitting/ragged/float32/0", TOY_FAMILIES="quitting")
    assert done.code == 70, done


def test_a_debugger_has_the_terminal(environment, tmp_path):
    (tmp_path / "stops.py").write_text(
        "import sys\nfrom toy_plugin import *\nif sys.argv[1:2] == ['show']:\n"
        "    print('given:', input())\n"
    )
    path = f"{environment['PYTHONPATH']}:{tmp_path}"
    done = subprocess.run(
        [sys.executable, "-m", "conformance", "show", "toy/calm/ragged/float32/0"],
        input="from the terminal\n",
        capture_output=True,
        text=True,
        env={**environment, "PYTHONPATH": path, "TOY_PLUGIN": "stops"},
        check=True,
    )
    assert "given: from the terminal\n" in done.stderr


@pytest.fixture
def ended(environment, tmp_path):
    """Ends a command by a signal while it runs a case; its exit code and its processes."""

    def end(number):
        log = tmp_path / "log"
        started = subprocess.Popen(
            [sys.executable, "-m", "conformance", "show", STUCK],
            env={**environment, "TOY_LOG": str(log)},
        )
        while not log.exists():
            time.sleep(0.05)
        children = psutil.Process(started.pid).children(recursive=True)
        os.kill(started.pid, number)
        return started.wait(30), children

    return end


@pytest.mark.parametrize(
    ("number", "code"),
    [
        (signal.SIGINT, 2),
        (signal.SIGTERM, 2),
        (signal.SIGKILL, -signal.SIGKILL),
    ],
)
def test_no_process_is_left(ended, number, code):
    found, children = ended(number)
    assert found == code
    assert len(children) == 1
    _, alive = psutil.wait_procs(children, timeout=20)
    assert not alive
