"""Schedules whose single stream fails: what is said of them, and what they are compared with."""

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
    """A schedule that was played, or why it could not be.

    Attributes:
        play: ``None`` without a single stream.
        finding: about the single stream, if it failed.
        error: what it raised, if there is none to compare with.
    """

    play: Play | None
    finding: Finding | None = None
    error: Exception | None = None


def attempt(schedule: Schedule, play: Callable[[bool], Play]) -> Attempt:
    """Play a schedule, against single streams of whole prompts if those in pieces fail.

    A release whose single stream cannot take a prompt in pieces may do so in a batch: the verdict
    is then ``oracle``, beside whatever is wrong in the batch.

    Args:
        play: plays the schedule; if true is passed, no prompt of a single stream is cut.

    Raises:
        Exception: whatever the machine, and not the library, is to blame for.
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
    """Whether a prompt is prefilled in pieces; all but its last token are cut."""
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
