"""What code of models prints comes to stderr as plain text, by whatever way it is printed."""

import os
import subprocess
import sys
import time

import pytest

from conformance.app.cli.models_output import plain_output

HOSTILE = "a\x1b]0;title\x07\x1b[2J\n::error::b"
PLAIN = "a\\x1b]0;title\\x07\\x1b[2J\n\\::error::b"


def by_print():
    print(HOSTILE)


def by_stderr():
    print(HOSTILE, file=sys.stderr)


def by_descriptor():
    os.write(1, HOSTILE.encode())


def by_process():
    subprocess.run([sys.executable, "-c", f"print({HOSTILE!r})"], check=True)


@pytest.mark.parametrize("write", [by_print, by_stderr, by_descriptor, by_process])
def test_no_command_reaches_the_terminal(capfd, write):
    print("before")
    with plain_output():
        write()
    print("after")
    shown = capfd.readouterr()
    assert shown.out == "before\nafter\n"
    assert shown.err.strip() == PLAIN


def test_it_comes_while_the_code_runs(capfd):
    with plain_output():
        by_descriptor()
        for _ in range(100):
            if shown := capfd.readouterr().err:
                break
            time.sleep(0.05)
    assert shown == PLAIN


def test_what_no_letters_are_is_replaced(capfd):
    with plain_output():
        os.write(2, b"\xff\xc3")
        os.write(2, b"\xbc\x9b31m")
    assert capfd.readouterr().err == "\ufffdü\ufffd31m"


def test_more_than_a_pipe_holds_is_passed_on_and_the_streams_are_as_before(capfd):
    def interrupted():
        os.write(1, b"x" * 2_000_000)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), plain_output():
        interrupted()
    assert len(capfd.readouterr().err) == 2_000_000
    print("after")
    assert capfd.readouterr().out == "after\n"
