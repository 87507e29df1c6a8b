"""Schedules whose single stream fails: their findings, and what to compare them with instead."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from conformance.checks import Play
from conformance.core.failures import failure_of, machine_problem
from conformance.core.schedule import Schedule
from conformance.core.verdict import Finding, Verdict


@dataclass(frozen=True)
class Attempt:
    """A schedule that was run, or the reason why it could not be.

    Attributes:
        play: the run; ``None`` without a single stream.
        finding: the finding about the single stream, if it failed.
        error: the exception of the single stream, if there is none to compare with.
    """

    play: Play | None
    finding: Finding | None = None
    error: Exception | None = None


def attempt(schedule: Schedule, play: Callable[[bool], Play]) -> Attempt:
    """Run a schedule; compare with single streams of whole prompts if those in pieces fail.

    A release whose single stream cannot take a prompt in pieces may do so in a batch: the verdict
    is then ``oracle``, in addition to any finding in the batch.

    Args:
        play: runs the schedule; with true, no prompt of a single stream is cut.

    Raises:
        Exception: an error of the machine, not of the library.
    """
    try:
        return Attempt(play(False))
    except Exception as error:
        if machine_problem(error):
            raise
        first = error
    finding = _finding(schedule, first)
    if not _cut(schedule):
        return Attempt(None, finding, first)
    try:
        played = play(True)
    except Exception as error:
        if machine_problem(error):
            raise
        return Attempt(None, finding, first)
    what = f"{finding.what}; compared with single streams of whole prompts"
    return Attempt(played, msgspec.structs.replace(finding, verdict=Verdict.ORACLE, what=what))


def _cut(schedule: Schedule) -> bool:
    """Whether a prompt is prefilled in pieces; the pieces exclude its last token."""
    size = schedule.options.prefill_step_size
    plain = schedule.options.kv is None
    return plain and any(len(request.prompt) - 1 > size for request in schedule.requests)


def _finding(schedule: Schedule, error: Exception) -> Finding:
    failure = failure_of(error, "decoding one request in a single stream")
    quantized = schedule.options.kv is not None
    what = "quantized caches of one row" if quantized else "the single stream"
    return Finding(
        Verdict.UNSUPPORTED if failure.unsupported else Verdict.CRASH,
        "failure",
        f"{what} raised {failure}",
        schedule=schedule.name,
        expected="no exception",
        got=f"{failure.type_name}: {failure.message}",
        cause="the library's model cannot use these caches, in a batch or in a single stream"
        if quantized
        else "the library fails before any batch is made",
    )
