"""A device that no longer computes for a process, as after an illegal memory access on CUDA.

Every later case in that process fails too, so these results are meaningless. The same holds for a
case that a device or its compiler refused, if it is right when run alone.
"""

from __future__ import annotations

import msgspec

from conformance.backend.device import device_error
from conformance.core.failures import device_lost, device_refused
from conformance.core.verdict import CaseResult, Finding, Verdict
from conformance.report.not_playable import MACHINE

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
