"""Resources that are not released: caches after the end, rows without request, graphs, buffers.

What is alive outside the caches must not grow while the same rows decode, nor what is left when
the same requests have come and gone again.
"""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Iterator

from conformance.checks.play import Play
from conformance.core.schedule import Stage, Weigh
from conformance.core.trace import Alive, KeptCache, KeptLayer, Step, Trace
from conformance.core.verdict import Finding, Verdict

# A cache may hold this multiple of the bytes it reports, plus this many for allocation granularity.
_SLACK, _ROUNDING = 2, 1024
# mx.contiguous makes no copy if a buffer is larger than the array by at most this many bytes:
# extra_bytes in mlx/backend/cpu/primitives.cpp.
_VIEW = 16384
# Successive steps in which the graph must grow.
_STEPS = 3
# After its first steps a long run is compared with itself, at a distance of as many steps as
# mlx-vlm takes to clear accumulated work (DEFAULT_CACHE_EVAL_INTERVAL). Most comparisons must
# show growth.
_WARM_UP, _PERIOD, _LEAST, _MOST, _FEW = 20, 50, 150, 0.6, 0.1
# Rises after which counts never fall back, before or after the largest fall: buffers that are in
# flight only at times may cause two or three.
_RISES = 5
# The first cycles of requests make what is kept for all. Later ones leave more and more if this
# share of them leaves more; so many kinds of things are named.
_FIRST_CYCLES, _OFTEN, _NAMED = 4, 0.8, 3
# Measurements of long runs.
_LONG = (Weigh.ALIVE, Weigh.SAMPLED)
_NOT_TAKEN_OUT = "a finished or removed row was not taken out of the batch"


def check_leak(play: Play) -> list[Finding]:
    """``leak`` for memory or work that no request can use any more.

    That is: bytes after the last request; more and more after equal cycles of requests; rows
    without a request; buffers that a kept cache, or one of its layers, holds in addition to its
    own; graphs that grow from step to step because nothing evaluates them; arrays and bytes outside
    the caches that grow in a long run of the same rows.
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
                    f"step {step} computed {batch} rows with {live} unfinished requests",
                    expected=f"at most {live} rows",
                    got=f"{batch} rows",
                    cause=_NOT_TAKEN_OUT,
                )
            )
    return [*findings, *_piled_up(play), *_left(play)]


def _left(play: Play) -> list[Finding]:
    """What there was more and more of after equal cycles of requests, in every run."""
    grown = [_growing(trace) for trace in play.traces[:2]]
    common = [kind for kind in grown[0] if all(kind in of for of in grown)]
    if not common:
        return []
    named = [f"{kind} {grown[0][kind][0]} to {grown[0][kind][1]}" for kind in common[:_NAMED]]
    return [
        _finding(
            play,
            play.traces[0],
            f"{len(play.traces[0].left)} equal cycles of requests leave more and more: "
            f"{'; '.join(named)}",
            expected="the same after each cycle",
            got=f"{len(common)} kinds of things of which each cycle leaves more",
            cause="something of each request, or of each engine, is kept",
        )
    ]


def _growing(trace: Trace) -> dict[str, tuple[int, int]]:
    """By kind, the first and the last count; kinds that say most come first."""
    counts = trace.left[_FIRST_CYCLES:]
    kinds = {kind for count in counts for kind in count}
    series = {kind: [count.get(kind, 0) for count in counts] for kind in sorted(kinds, key=_rank)}
    return {kind: (of[0], of[-1]) for kind, of in series.items() if _rises_throughout(of)}


def _rank(kind: str) -> tuple[bool, bool, str]:
    return kind.startswith("objects of builtins"), kind.startswith("objects"), kind


def _rises_throughout(counts: list[int]) -> bool:
    """Whether almost all counts are larger than those before them, and hardly any smaller."""
    rises = sum(later > earlier for earlier, later in itertools.pairwise(counts))
    falls = sum(later < earlier for earlier, later in itertools.pairwise(counts))
    return rises >= _OFTEN * len(counts) and falls <= _FEW * len(counts)


def _kept(play: Play, trace: Trace) -> list[Finding]:
    """Whether the released cache, or one of its layers, held much more than it reports."""
    kept = trace.kept
    if kept is None:
        return []
    name = f"the cache of {kept.request_id}"
    found: list[tuple[str, KeptCache | KeptLayer, int]] = [(name, kept, _ROUNDING)]
    for layer in kept.layers:
        found.append((f"layer {layer.place} of {name}", layer, _ROUNDING + _VIEW * layer.arrays))
    return [
        _finding(
            play,
            trace,
            f"{what} reports {of.counted} bytes and held {of.held}",
            expected=f"about {of.counted} bytes",
            got=f"{of.held} bytes",
            cause="it is a view of larger buffers, or an unevaluated slice of them",
        )
        for what, of, more in found
        if of.held > _SLACK * of.counted + more
    ][:1]


def _growth(play: Play, trace: Trace) -> list[Finding]:
    """Whether the graph behind the caches grew in each of several steps of the same rows."""
    if play.schedule.weigh in _LONG:  # see _piled_up: some engines compute it now and then
        return []
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
            f"the unevaluated graph behind the caches grew by {each:g} edges a step, "
            f"from {longest[0]} "
            f"to {longest[-1]}",
            expected="the same after each step",
            got=f"{longest[-1]} edges",
            cause="an array that is carried from step to step is never evaluated",
        )
    ]


def _piled_up(play: Play) -> list[Finding]:
    """Whether arrays, uncounted bytes or graphs grew throughout a run of the same rows.

    In every run, since buffers in flight may look like growth in one of them.
    """
    ended = (t for t in play.traces[:2] if t.failure is None and not t.out_of_steps)
    grown = [_grown(play, trace) for trace in ended if any(_long_runs(trace))]
    return [f for found in grown for what, f in found.items() if all(what in g for g in grown)]


def _grown(play: Play, trace: Trace) -> dict[str, Finding]:
    """A finding for each of the two that grew in the run."""
    found = {}
    for run in _long_runs(trace):
        for what, counts in (
            ("live arrays", [alive.arrays for alive, _ in run]),
            ("bytes beside the caches", [alive.nbytes for alive, _ in run]),
            ("edges of the graph behind the caches", [edges or 0 for _, edges in run]),
        ):
            if not (each := _growth_of(counts)):
                continue
            found[what] = _finding(
                play,
                trace,
                f"in {len(run)} steps of the same rows {what} grew by {each:.3g} a step",
                expected="the same after each step",
                got=f"{counts[-2]} {what}",
                cause="something of each step is kept",
            )
    return found


def _long_runs(trace: Trace) -> Iterator[list[tuple[Alive, int | None]]]:
    for _, steps in itertools.groupby(trace.steps, key=_rows):
        run = [(step.alive, step.pending) for step in steps if step.alive is not None]
        if len(run) >= _LEAST:
            yield run


def _growth_of(counts: list[int]) -> float:
    """Growth per step; 0 if it is not continuous.

    Each count is compared with the count one period later, when an engine that clears periodically
    is at the same point. Comparisons across the largest fall are left out, as a buffer may be
    returned. A single rise is in as many comparisons as a period has steps, so growth must be in
    more.
    """
    counts = counts[_WARM_UP:]
    falls = [later - earlier for earlier, later in itertools.pairwise(counts)]
    fall = falls.index(min(falls))
    more = [
        counts[at + _PERIOD] - counts[at]
        for at in range(len(counts) - _PERIOD)
        if not (min(falls) < 0 and at <= fall < at + _PERIOD)
    ]
    up, down = sum(one > 0 for one in more), sum(one < 0 for one in more)
    if up <= _PERIOD or up < _MOST * len(more) or down > _FEW * len(more):
        return 0.0
    if _lasting_rises(counts[: fall + 1]) + _lasting_rises(counts[fall + 1 :]) < _RISES:
        return 0.0
    return statistics.median(more) / _PERIOD


def _lasting_rises(counts: list[int]) -> int:
    """How often the counts rise to more than any later count falls to."""
    least = set(itertools.accumulate(reversed(counts), min))
    return max(len(least) - 1, 0)


def _decoding(trace: Trace) -> Iterator[list[int]]:
    """The edges after each of successive steps with exactly the same decoding rows."""
    for _, steps in itertools.groupby(trace.steps, key=_rows):
        run = [step.pending for step in steps if step.pending is not None]
        if run:
            yield run


def _rows(step: Step) -> tuple[tuple[str, ...], bool]:
    return step.in_stage(Stage.DECODE), bool(step.output.processed)


def _ghost_rows(trace: Trace) -> tuple[int, int, int] | None:
    """The first step with a model call that has more rows than there are unfinished requests.

    The verification of a draft may have as many rows as the previous round began with: a row may
    end within a round, and leaves when the engine starts the next.
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
