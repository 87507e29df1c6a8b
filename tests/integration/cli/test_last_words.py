"""A command whose process is ended has a sentence said for it."""

import os
import signal
import subprocess
import sys
import time

import pytest

CASE = "toy/fatal/ragged/float32/0"
WORDS = "conformance: the process died while it ran `conformance {}`"


def test_a_case_that_ends_the_process_is_told(conformance):
    done = conformance("show", CASE)
    assert done.code == -signal.SIGSEGV, done
    assert done.err.startswith(WORDS.format(f"show {CASE}"))
    assert done.err.count("\n") == 1
    assert "`conformance run` plays cases in processes that may die" in done.err


@pytest.mark.parametrize(
    "words", [("show", "toy/calm/ragged/float32/0"), ("show", "nonsense"), ("--help",), ("nope",)]
)
def test_what_ends_by_itself_needs_no_words(conformance, words):
    assert "the process died" not in conformance(*words).err


@pytest.fixture
def ended(environment, tmp_path):
    """Ends a command by a signal while it plays a case; gives its exit code and its last words."""

    def end(number):
        log = tmp_path / "log"
        command = (
            "from conformance.app.cli import main; main()",
            "show",
            "toy/stuck/ragged/float32/0",
        )
        started = subprocess.Popen(
            [sys.executable, "-c", *command],
            stderr=subprocess.PIPE,
            text=True,
            env={**environment, "TOY_LOG": str(log)},
        )
        while not log.exists():
            time.sleep(0.05)
        os.kill(started.pid, number)
        said = started.communicate(timeout=30)[1]
        return started.returncode, said

    return end


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_somebody_may_have_ended_it(ended, number):
    code, said = ended(number)
    assert code == -number
    assert said.startswith(WORDS.format("show toy/stuck/ragged/float32/0"))
    assert "or somebody ended it" in said


def test_an_interruption_needs_no_words(ended):
    assert "the process died" not in ended(signal.SIGINT)[1]
