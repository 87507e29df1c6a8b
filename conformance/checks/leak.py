"""What is not given back: caches after the end, work for rows that are gone, graphs and buffers."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from conformance.checks.base import Play
from conformance.core.schedule import Stage
from conformance.core.trace import Step, Trace
from conformance.core.verdict import Finding, Verdict

# A cache may hold this often what it counts, and this many bytes more for how memory is handed out.
_SLACK, _ROUNDING = 2, 1024
# Steps in a row that the graph must grow in.
_STEPS = 3
_NOT_TAKEN_OUT = "a finished or removed row was not taken out of the batch"


def check_leak(play: Play) -> list[Finding]:
    """``leak`` for what is held that nobody can use any more.

    That is: bytes after the last request; rows without a request; buffers that an ended request's
    cache holds beside its own; graphs that grow from step to step, as nobody computes them.
    """
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
                    cause=_NOT_TAKEN_OUT,
                )
            )
        findings += _kept(play, trace)
        findings += _growth(play, trace)
        if play.staged and (found := _ghost_rows(trace)) is not None:
            step, batch, live = found
            findings.append(
                _finding(
                    play,
                    trace,
                    f"step {step} computed {batch} rows with {live} requests live",
                    expected=f"at most {live} rows",
                    got=f"{batch} rows",
                    cause=_NOT_TAKEN_OUT,
                )
            )
    return findings


def _kept(play: Play, trace: Trace) -> list[Finding]:
    """Of a cache that was given up: whether it held much more than it counts."""
    kept = trace.kept
    if kept is None or kept.held <= _SLACK * kept.counted + _ROUNDING:
        return []
    return [
        _finding(
            play,
            trace,
            f"the cache of {kept.request_id} counts {kept.counted} bytes and held {kept.held}",
            expected=f"about {kept.counted} bytes",
            got=f"{kept.held} bytes",
            cause="it is a view of the batch's buffers, or waits to be cut out of them",
        )
    ]


def _growth(play: Play, trace: Trace) -> list[Finding]:
    """Whether the graph behind the caches grew in each of several steps of the same rows."""
    longest: list[int] = []
    for run in _decoding(trace):
        grown = [run[0]]
        for edges in run[1:]:
            grown = [*grown, edges] if edges > grown[-1] else [edges]
            longest = max(longest, grown, key=len)
    if len(longest) <= _STEPS:
        return []
    each = (longest[-1] - longest[0]) / (len(longest) - 1)
    return [
        _finding(
            play,
            trace,
            f"the graph that the caches wait for grew by {each:g} edges a step, from {longest[0]} "
            f"to {longest[-1]}",
            expected="the same after each step",
            got=f"{longest[-1]} edges",
            cause="an array that is carried on from step to step is never computed",
        )
    ]


def _decoding(trace: Trace) -> Iterator[list[int]]:
    """The edges after each of successive steps in which the same rows decoded, and only they."""
    for _, steps in itertools.groupby(trace.steps, key=_rows):
        run = [step.pending for step in steps if step.pending is not None]
        if run:
            yield run


def _rows(step: Step) -> tuple[tuple[str, ...], bool]:
    return step.in_stage(Stage.DECODE), bool(step.output.processed)


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


def _finding(
    play: Play, trace: Trace, what: str, *, expected: str, got: str, cause: str
) -> Finding:
    return Finding(
        Verdict.LEAK,
        "leak",
        what,
        schedule=play.schedule.name,
        mode=trace.mode,
        expected=expected,
        got=got,
        cause=cause,
    )
