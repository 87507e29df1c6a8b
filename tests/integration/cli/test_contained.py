"""A command about one case ends in a sentence if it crashes, and leaves no process."""

import os
import signal
import subprocess
import sys
import time

import psutil
import pytest

CASE = "toy/fatal/ragged/float32/0"
STUCK = "toy/stuck/ragged/float32/0"
SENTENCE = "conformance: `conformance {}` crashed (signal SIGSEGV): native code of a library can"


@pytest.mark.parametrize("command", ["show", "explain"])
def test_a_case_that_crashes_the_process_ends_in_a_sentence(conformance, command):
    done = conformance(command, CASE)
    assert done.code == 128 + signal.SIGSEGV, done
    last = done.err.splitlines()[-1]
    assert last.startswith(SENTENCE.format(f"{command} {CASE}"))
    assert "`conformance run` runs cases in worker processes" in last
    assert "Fatal Python error: Segmentation fault" in done.err
    assert 'toy_plugin.py", line' in done.err, "where it was"


@pytest.mark.parametrize(
    ("arguments", "code"),
    [(("toy/calm/ragged/float32/0",), 0), (("toy/broken/ragged/float32/0",), 1), (("no",), 2)],
)
def test_every_other_end_is_the_command_s_own(conformance, arguments, code):
    done = conformance("show", *arguments)
    assert done.code == code, done
    assert "crashed (" not in done.err


def test_a_debugger_has_the_terminal(environment, tmp_path):
    (tmp_path / "stops.py").write_text(
        "import sys\nfrom toy_plugin import *\nif sys.argv[0] == '-c' and len(sys.argv) > 1:\n"
        "    print('given:', input())\n"
    )
    path = f"{environment['PYTHONPATH']}:{tmp_path}"
    done = subprocess.run(
        [sys.executable, "-m", "conformance", "show", "toy/calm/ragged/float32/0"],
        input="from the terminal\n",
        stdout=subprocess.PIPE,
        text=True,
        env={**environment, "PYTHONPATH": path, "TOY_PLUGIN": "stops"},
        check=True,
    )
    assert done.stdout.startswith("given: from the terminal\n")


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
