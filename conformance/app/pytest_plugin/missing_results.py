"""Results of cases that returned none: after a crash, a hang, or an error of the harness."""

from __future__ import annotations

import traceback

from conformance.app.pytest_plugin.setup import Setup
from conformance.core.errors import ConformanceError, MachineError
from conformance.core.verdict import CaseId, CaseResult, Finding, Verdict
from conformance.run.judging.judge import Outcome
from conformance.run.judging.summing import result_of


def crashed(
    setup: Setup, case: CaseId, seconds: float, place: str, *, ended: str = ""
) -> CaseResult:
    """The worker process crashed while it ran ``case``; a hang if the timeout was reached.

    Args:
        place: the fault and the last Python frame, if the process could write it.
        ended: how it ended, such as ``signal SIGKILL``.
    """
    timeout = setup.settings.timeout
    if 0 < timeout <= seconds:
        return hang(setup, case, seconds, place)
    got = ": ".join(filter(None, (ended, place)))
    cause = "native code read or wrote out of bounds, for example a token id past the vocabulary"
    if ended == "signal SIGKILL":
        cause = "it was killed from outside: by the system, where memory ran out, or by a user"
    finding = Finding(
        verdict=Verdict.CRASH,
        check="process",
        what="the process that ran the case crashed without a Python exception",
        expected="a verdict",
        got=got or "the end of the process (killed, or an exit from native code)",
        cause=cause,
    )
    return _result(setup, case, finding, seconds)


def over_memory(
    setup: Setup,
    case: CaseId,
    seconds: float,
    place: str,
    *,
    taken: int,
    limit: int,
    memory: str = "memory",
) -> CaseResult:
    """The worker process was ended while it ran ``case``, because of its memory use."""
    finding = Finding(
        verdict=Verdict.CRASH,
        check="memory",
        what=f"the process that ran the case took more {memory} than it may, and was ended",
        expected=f"at most {limit / 1e9:.3g} GB",
        got=f"{taken / 1e9:.3g} GB" + (f" ({place})" if place else ""),
        cause="memory that grows without end, or a limit (--memory) too low for this model",
    )
    return _result(setup, case, finding, seconds)


def hang(setup: Setup, case: CaseId, seconds: float, place: str = "") -> CaseResult:
    """The case was stopped by the timeout."""
    finding = Finding(
        verdict=Verdict.HANG,
        check="process",
        what="the case took longer than the timeout and was stopped",
        expected=f"an end within {setup.settings.timeout:g} s",
        got=f"none after {seconds:.0f} s" + (f" ({place})" if place else ""),
        cause="an engine call that does not return, or a machine that is too slow for this timeout",
    )
    return _result(setup, case, finding, seconds)


def harness_failure(setup: Setup, case: CaseId, error: BaseException, seconds: float) -> CaseResult:
    """The harness itself raised an exception, which it must not do."""
    got = str(error)
    cause = "a defect of mlx-conformance or of a plugin, not of the engine"
    if isinstance(error, MachineError):
        cause = "this machine, not the engine: give it what it lacks, and run again"
    elif not isinstance(error, ConformanceError):
        got = traceback.format_exception_only(error)[-1].strip()
    finding = Finding(
        verdict=Verdict.CRASH,
        check="harness",
        what="the harness could not run the case",
        expected="a verdict",
        got=got,
        cause=cause,
    )
    return _result(setup, case, finding, seconds)


def unjudged(setup: Setup, case: CaseId, text: str) -> CaseResult:
    """Something other than the case failed, such as another plugin's hook."""
    lines = [line for line in text.splitlines() if line.strip()]
    return harness_failure(setup, case, ConformanceError(lines[-1] if lines else "no text"), 0.0)


def _result(setup: Setup, case: CaseId, finding: Finding, seconds: float) -> CaseResult:
    library = setup.registry.libraries[setup.library_of(case)]
    return result_of(
        case,
        Outcome((finding,), (), None),
        adds="",
        versions=setup.registry.versions_of(case.engine),
        device=library.device(),
        seconds=seconds,
    )
