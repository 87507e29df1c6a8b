"""What a process takes, and its end with all that it started."""

import struct
import sys

import psutil
import pytest
from started_processes import starter

from conformance.core.processes import _footprint, describe_exit, end_tree, memory_of


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
