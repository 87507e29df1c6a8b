"""What rows that decode and requests that have ended keep in memory; going on at the very end."""

from __future__ import annotations

from conformance.core.engine import Capability
from conformance.core.options import EngineOptions, PrefixCaching
from conformance.core.schedule import Request, Schedule, Stage, Weigh
from conformance.core.trace import Trace
from conformance.scenarios.base import Brief, Scenario, Witness
from conformance.scenarios.build import LASTING, LONG, MEDIUM, SHORT, ask, gone, together

FEW = 2  # output tokens
# Rows of a batch whose buffers one short row might keep. The first is weighed.
LENGTHS = (SHORT, LONG, MEDIUM, LONG, MEDIUM, LONG, MEDIUM, LONG)


def _held(brief: Brief) -> list[Schedule]:
    return [_decoding(brief), _ended(brief, "computed", Weigh.COMPUTED)]


def _kept(brief: Brief) -> list[Schedule]:
    return [_ended(brief, "as_left", Weigh.KEPT), _resumed(brief)]


def _decoding(brief: Brief) -> Schedule:
    """Rows that decode for a while; nothing that a step leaves behind may grow."""
    lengths = (MEDIUM, SHORT)
    rows = [ask(brief, f"of_{n}", n, max_tokens=LASTING) for n in lengths]
    return Schedule("decoding", (together(*rows),), weigh=Weigh.GRAPH)


def _ended(brief: Brief, name: str, weigh: Weigh) -> Schedule:
    """A short row's cache is kept when the batch is gone: it may hold what is its own."""
    rows = [
        ask(brief, f"row_{row}", length, variant=row // 3, max_tokens=FEW)
        for row, length in enumerate(LENGTHS)
    ]
    return Schedule(name, (together(*rows),), weigh=weigh)


def _resumed(brief: Brief) -> Schedule:
    """A prompt and all of its answer, to be gone on from: a kept sequence, to the last token."""
    options = EngineOptions(prefix_caching=PrefixCaching())
    first = ask(brief, "first", LONG, max_tokens=FEW)
    answer = brief.solo(first, options).tokens
    resumed = Request("resumed", first.prompt + answer, FEW)
    return Schedule(
        "resumed", (together(first), together(resumed, when=gone("first"))), options=options
    )


def _counted(trace: Trace) -> bool:
    steps = [s for s in trace.steps if s.pending is not None and len(s.in_stage(Stage.DECODE)) > 1]
    return len(steps) > SHORT


def _weighed(trace: Trace) -> bool:
    several = any(len(step.in_stage(Stage.DECODE)) > 1 for step in trace.steps)
    return several and trace.kept is not None and trace.kept.counted > 0


_WEIGHED = Witness("a kept cache of one of several rows that was weighed", _weighed)
HELD = Scenario(
    "held",
    125,
    "the graph behind rows that decode, and the memory of a cache that outlives its batch",
    frozenset({Capability.WEIGHED}),
    _held,
    (Witness("steps of several rows whose graph was counted", _counted), _WEIGHED),
)
KEPT = Scenario(
    "kept",
    156,
    "the memory of a cache as it was left, and a prompt that is a kept sequence to its end",
    frozenset({Capability.WEIGHED, Capability.PREFIX_CACHING}),
    _kept,
    (_WEIGHED,),
)
