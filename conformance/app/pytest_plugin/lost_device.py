"""A device that computes nothing more for a process, as after an illegal memory access on CUDA.

What comes later in that process fails, too, whatever it is: its results say nothing. Nor does one
that a device or its compiler refused, if it is right when it is played alone.
"""

from __future__ import annotations

import msgspec

from conformance.backend.device import device_error
from conformance.core.failures import device_lost, device_refused
from conformance.core.verdict import CaseResult, Finding, Verdict
from conformance.report.not_playable import MACHINE

CHECK = "device"
"""The check name of the finding that only the next computation shows what a case did."""


def lost(result: CaseResult | None = None) -> bool:
    """Whether the device is lost to this process, by a result or by a computation of its own.

    The second shows what no case has said: devices report late, and libraries catch exceptions.
    """
    said = result is not None and any(device_lost(finding.got) for finding in result.evidence)
    return said or bool(device_error())


def refusal(result: CaseResult) -> str:
    """The message of a device or its compiler that refused something in the case; else empty.

    A lost device loads no kernel either: that is no refusal by itself.
    """
    said = [finding.got for finding in result.evidence]
    if any(map(device_lost, said)):
        return ""
    return next((text for text in said if device_refused(text)), "")


def by_itself(message: str) -> str:
    """The message of a refusal; empty if the device is lost to this process, and refuses all."""
    return "" if message and lost() else message


def after_refusal(result: CaseResult, message: str) -> CaseResult:
    """What the case gave alone, after that message; it names the machine if it was not refused."""
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
    """A result of a fresh process; a crash if the device is lost now and nothing says so."""
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
