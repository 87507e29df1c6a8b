"""What a process takes, and its end with all that it started."""

import struct
import sys
import time

import psutil
import pytest
from started_processes import starter

from conformance.core.processes import _footprint, describe_exit, end_tree, memory_of, run_to_end


@pytest.fixture
def start():
    with starter() as call:
        yield call


@pytest.mark.skipif(sys.platform == "darwin", reason="the footprint is tested below")
def test_memory_grows_with_what_is_written_and_not_with_what_is_only_reserved():
    process = psutil.Process()
    before = memory_of(process)
    held = bytearray(b"x") * 2**26
    assert memory_of(process) - before > 2**25
    del held
    assert 1e6 < before < 1e11


def test_a_process_that_is_gone_takes_nothing(start):
    process, _ = start()
    watched = psutil.Process(process.pid)
    process.kill()
    process.wait()
    assert memory_of(watched) == 0


class Macos:
    """``proc_pid_rusage`` of libproc: fills ``struct rusage_info_v0``."""

    def __init__(self, answer):
        self.answer = answer

    def proc_pid_rusage(self, pid, flavour, buffer):
        assert (pid, flavour) == (7, 0)
        uuid, numbers = b"u" * 16, range(1, 11)
        packed = struct.pack("=16s10Q", uuid, *numbers)
        buffer[: len(packed)] = packed
        return self.answer


def test_macos_gives_the_physical_footprint():
    """Of its numbers it is the eighth: after times, wake-ups, page-ins, wired and resident size."""
    assert _footprint(7, Macos(0)) == 8
    assert _footprint(7, Macos(-1)) == 0


def test_a_process_with_the_number_of_an_earlier_one_goes_on(start, monkeypatch):
    process, _ = start()
    watched = psutil.Process(process.pid)
    monkeypatch.setattr(watched, "_create_time", 1.0)
    monkeypatch.setattr(watched, "_ident", (process.pid, 1.0))
    assert memory_of(watched) == 0
    end_tree(watched)
    assert process.poll() is None


def test_an_exit_code_is_said_in_words():
    assert describe_exit(3) == "exit status 3"
    assert describe_exit(-11) == "signal SIGSEGV"
    assert describe_exit(-63) == "signal 63"


def python(code, **options):
    return run_to_end([sys.executable, "-c", code], **options)


def test_a_command_runs_to_its_end():
    done = python("import sys; print('out'); print('no', file=sys.stderr); sys.exit(3)")
    assert (done.code, done.output, done.errors, done.why) == (3, "out\n", "no\n", "")
    assert (done.good, done.last_line) == (False, "no")
    together = python("import sys; print('out'); print('no', file=sys.stderr)", apart=False)
    assert together.good
    assert {*together.output.split()} == {"out", "no"}
    assert python("import os; os.abort()").code == -6


def test_a_command_that_is_not_there_is_said():
    done = run_to_end(["no-such-program"])
    assert (done.code, done.good) == (None, False)
    assert done.why == "cannot be started: No such file or directory"


FAMILY = """
import subprocess, sys, time
subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
print(1, flush=True)
time.sleep(60)
"""


def test_a_command_ends_with_its_children_when_its_time_is_over():
    before = {*psutil.Process().children(recursive=True)}
    began = time.monotonic()
    done = python(FAMILY, seconds=1.0)
    assert (done.why, done.output, done.good) == ("takes more than 1 seconds", "1\n", False)
    done = python(FAMILY, go_on=lambda: False)
    assert (done.why, done.code) == ("is no longer needed", -9)

    def interrupted():
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        python(FAMILY, go_on=interrupted)
    assert time.monotonic() - began < 30
    assert {*psutil.Process().children(recursive=True)} <= before
