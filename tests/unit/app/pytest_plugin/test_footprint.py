"""What a process takes, as the system says it."""

import os
import struct
import sys

import pytest

from conformance.app.pytest_plugin import footprint as module
from conformance.app.pytest_plugin.footprint import (
    LEAST,
    SHARE,
    _footprint_of_macos,
    fair_limit,
    footprint,
    memory_of_machine,
)


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_it_grows_with_what_is_written_and_not_with_what_is_only_asked_for():
    before = footprint(os.getpid())
    held = bytearray(b"x") * 2**26
    assert footprint(os.getpid()) - before > 2**25
    del held
    assert 1e6 < before < 1e11


def test_a_process_that_is_gone_takes_nothing():
    assert footprint(2**22 + 1) is None


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


def test_macos_says_the_physical_footprint():
    """Of its numbers it is the eighth: after times, wake-ups, page-ins, wired and resident size."""
    assert _footprint_of_macos(7, Macos(0)) == 8
    assert _footprint_of_macos(7, Macos(-1)) is None


def test_a_container_has_less_memory_than_its_machine(monkeypatch, tmp_path):
    whole = memory_of_machine()
    files = {"max": "max\n", "less": f"{2**30}\n", "more": f"{2**60}\n"}
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    for name, expected in {"max": whole, "less": 2**30, "more": whole, "none": whole}.items():
        monkeypatch.setattr(module, "_CGROUPS", (str(tmp_path / name),))
        assert memory_of_machine() == expected, name


def test_processes_share_but_each_can_load_a_library(monkeypatch):
    monkeypatch.setattr(module, "memory_of_machine", lambda: 100 * 10**9)
    assert fair_limit(4) == int(SHARE * 25e9)
    assert fair_limit(0) == fair_limit(1) == int(SHARE * 100e9)
    assert fair_limit(1000) == LEAST
    assert fair_limit(2, 0.5) == 25 * 10**9
