"""What is not given back: caches after the end, work for rows that are gone."""

from __future__ import annotations

from conformance.checks.base import Play
from conformance.schedule import Stage
from conformance.trace import Trace
from conformance.verdict import Finding, Verdict


def check_leak(play: Play) -> list[Finding]:
    """``leak`` for cache bytes held after the last request, and for rows without a request."""
    findings = []
    for trace in play.traces[:2]:
        if trace.failure is not None or trace.out_of_steps:
            continue
        if trace.cache_bytes_at_end:
            findings.append(
                _finding(
                    play,
                    trace,
                    f"{trace.cache_bytes_at_end} bytes of cache are held after the last request",
                    expected="0 bytes",
                    got=f"{trace.cache_bytes_at_end} bytes",
                )
            )
        if play.staged and (found := _ghost_rows(trace)) is not None:
            step, batch, live = found
            findings.append(
                _finding(
                    play,
                    trace,
                    f"step {step} computed {batch} rows with {live} requests live",
                    expected=f"at most {live} rows",
                    got=f"{batch} rows",
                )
            )
    return findings


def _ghost_rows(trace: Trace) -> tuple[int, int, int] | None:
    """The first step with a model call of more rows than there are live requests.

    A draft's verification counts those live with which the round before it began: a row may end
    within a round, and leaves when the engine makes up the next.
    """
    gone = (Stage.FINISHED, Stage.REMOVED)
    drafting = trace.schedule.options.drafting is not None
    before = 0
    for step in trace.steps:
        live = sum(stage not in gone for stage in step.stages.values())
        batch = max((call.batch for call in step.forwards), default=0)
        if batch > max(live, before):
            return step.index, batch, live
        if batch and drafting:
            before = live
    return None


def _finding(play: Play, trace: Trace, what: str, *, expected: str, got: str) -> Finding:
    return Finding(
        Verdict.LEAK,
        "leak",
        what,
        schedule=play.schedule.name,
        mode=trace.mode,
        expected=expected,
        got=got,
        cause="a finished or removed row was not taken out of the batch",
    )
