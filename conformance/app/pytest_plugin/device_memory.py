"""Limits how much GPU memory a process of a run may use; a process that uses more ends itself.

This is measured from inside: not every system counts a device's memory by process, containers least
of all, but mlx knows its own use. Its evaluations let other threads run.
"""

from __future__ import annotations

import re
import signal
import threading
from collections.abc import Callable
from typing import Any

import msgspec

from conformance.backend.device import device_error
from conformance.backend.memory import bytes_of_arrays, keep_cache_below, own_memory
from conformance.core.failures import device_lost, device_refused
from conformance.core.memory_limit import EVERY_SECONDS, LEAST, SHARE
from conformance.core.verdict import CaseResult, Finding, Verdict
from conformance.report.outcome import MACHINE

_LINE = re.compile(r"device memory: (\d+) of (\d+)\n")


def device_limit(given: float | None, processes: int) -> int:
    """The bytes that each of ``processes`` may use of their shared device; 0 for no limit.

    Args:
        given: the limit in GB, if there is one.
    """
    there = own_memory()
    if not there:
        return 0  # the device uses the machine's memory, which is watched from outside
    if given is not None:
        return int(given * 1e9)
    return max(LEAST, int(there * SHARE / max(processes, 1)))


def watch_device_memory(limit: int, file: Any) -> None:
    """In a worker: end it once its arrays use more than the limit; its file then says how much.

    Args:
        limit: in bytes; 0 watches nothing.
        file: of its crash, to which faulthandler adds the traceback.
    """
    if not limit:
        return
    keep_cache_below(limit)
    main = threading.main_thread().ident
    assert main is not None

    def end(taken: int) -> None:
        file.write(f"device memory: {taken} of {limit}\n")
        file.flush()
        signal.pthread_kill(main, signal.SIGABRT)

    look = threading.Thread(
        target=_watch, args=(limit, end), name="conformance-device-memory", daemon=True
    )
    look.start()


def _watch(limit: int, end: Callable[[int], None]) -> None:
    never = threading.Event()
    while not never.wait(EVERY_SECONDS):
        if (taken := bytes_of_arrays()) > limit:
            end(taken)
            return


def taken_of_device(crash: str) -> tuple[int, int] | None:
    """How much of its device a worker used, and the limit, if its crash file says so."""
    found = _LINE.match(crash)
    return (int(found[1]), int(found[2])) if found else None


def without_device(crash: str) -> str:
    """The rest of a crash file."""
    return _LINE.sub("", crash, count=1)


# A device that no longer computes for a process, as after an illegal memory access on CUDA -------

CHECK = "device"
"""The check name of the finding for a device that is found lost only after a case."""


def lost(result: CaseResult | None = None) -> bool:
    """Whether the device is lost to this process, by a result or by a computation of its own.

    The computation finds what no case has reported: devices report late, and libraries catch
    exceptions.
    """
    said = result is not None and any(device_lost(finding.got) for finding in result.evidence)
    return said or bool(device_error())


def refusal(result: CaseResult) -> str:
    """The message of a device or its compiler that refused something in the case; else empty.

    A lost device loads no kernel either, but this alone is not a refusal.
    """
    said = [finding.got for finding in result.evidence]
    if any(map(device_lost, said)):
        return ""
    return next((text for text in said if device_refused(text)), "")


def by_itself(message: str) -> str:
    """The message of a refusal; empty if the device is lost to this process and refuses all."""
    return "" if message and lost() else message


def after_refusal(result: CaseResult, message: str) -> CaseResult:
    """The case's result when run alone, after that message; names the machine if not refused."""
    if refusal(result):
        return result
    finding = Finding(
        verdict=Verdict.EXACT,
        check=MACHINE,
        what=f"refused at first ({message}), and played again alone, where it was not",
        expected="a device and a compiler that refuse nothing",
        got="a refusal beside other processes",
        cause="this machine, not the engine: kernels or memory that processes share",
    )
    return msgspec.structs.replace(result, evidence=(*result.evidence, finding))


def with_device(result: CaseResult) -> CaseResult:
    """A fresh process's result; a crash if the device is lost now and no finding says so."""
    problem = device_error()
    if not problem or any(device_lost(finding.got) for finding in result.evidence):
        return result
    finding = Finding(
        verdict=Verdict.CRASH,
        check=CHECK,
        what="after the case the device computes nothing more for the process",
        expected="a device that goes on",
        got=problem,
        cause="a kernel of the case read or wrote out of bounds; devices report it later",
    )
    evidence = (finding, *result.evidence)
    return msgspec.structs.replace(result, verdict=Verdict.CRASH, expected=False, evidence=evidence)
