"""Memory kept by decoding rows and by ended requests; continuing at the end of a kept sequence."""

from __future__ import annotations

from conformance.core.engine import Capability
from conformance.core.engine_options import EngineOptions, PrefixCaching
from conformance.core.schedule import (
    Request,
    Schedule,
    Stage,
    Weigh,
)
from conformance.core.trace import Trace
from conformance.scenarios.build import (
    LASTING,
    LONG,
    MEDIUM,
    SHORT,
    TWO,
    at_once,
    gone,
    text_request,
    together,
)
from conformance.scenarios.engine_sampling import bias
from conformance.scenarios.lengthy import STEP, if_it_fits
from conformance.scenarios.scenario import Brief, Scenario, Witness

FEW = 2  # output tokens
# Steps in which rows decode and memory must not grow.
STEPS = 200
# Tokens of a piece whose inputs are many times larger than a recurrent layer's state.
MANY = STEP
# Rows of a batch whose buffers one short row might keep alive. The first is measured.
LENGTHS = (SHORT, LONG, MEDIUM, LONG, MEDIUM, LONG, MEDIUM, LONG)


def _held(brief: Brief) -> list[Schedule]:
    weighed = Capability.WEIGHED in brief.capabilities
    first = [_decoding(brief), _ended(brief, "computed", Weigh.COMPUTED)] if weighed else []
    return [*first, _lasting(brief)]


def _kept(brief: Brief) -> list[Schedule]:
    stored = {Capability.SEGMENTS, Capability.STORED} <= brief.capabilities
    pieces = if_it_fits(brief, _piece(brief)) if stored else []
    return [_ended(brief, "as_left", Weigh.KEPT), _resumed(brief), *pieces]


def _decoding(brief: Brief) -> Schedule:
    """Rows that decode for a while; memory must not grow from step to step."""
    lengths = (MEDIUM, SHORT)
    # It ignores the history, which must still be computed, or it grows, too.
    given = (bias(brief, 0),) if Capability.SAMPLERS in brief.capabilities else ()
    rows = [
        text_request(brief, f"of_{n}", n, max_tokens=LASTING, processors=given) for n in lengths
    ]
    return at_once("decoding", *rows, weigh=Weigh.GRAPH)


def _lasting(brief: Brief) -> Schedule:
    """Rows that decode for long: memory outside their caches stays the same.

    If ``decoding`` is not run, two rows of one length: then their padding decides nothing, and need
    never be computed, as with the counters of https://github.com/Blaizzy/mlx-vlm/pull/1984.
    """
    names = ("one",) if Capability.WEIGHED in brief.capabilities else ("one", "other")
    rows = [
        text_request(brief, name, TWO, variant=variant, max_tokens=STEPS + 1)
        for variant, name in enumerate(names)
    ]
    return at_once("lasting", *rows, weigh=Weigh.ALIVE, contracts=("arrays",))


def _ended(brief: Brief, name: str, weigh: Weigh) -> Schedule:
    """A short row's cache is kept after the batch has ended: it must hold only its own part."""
    rows = [
        text_request(brief, f"row_{row}", length, variant=row, max_tokens=FEW)
        for row, length in enumerate(LENGTHS)
    ]
    return at_once(name, *rows, weigh=weigh)


def _resumed(brief: Brief) -> Schedule:
    """A prompt that consists of an earlier prompt and its whole output: a kept sequence."""
    options = EngineOptions(prefix_caching=PrefixCaching())
    first = text_request(brief, "first", LONG, max_tokens=FEW)
    output = brief.solo(first, options).tokens
    resumed = Request("resumed", first.prompt + output, FEW)
    return Schedule(
        "resumed", (together(first), together(resumed, when=gone("first"))), options=options
    )


def _piece(brief: Brief) -> Schedule:
    """A cache kept at the end of a prompt's piece must not hold what the piece was computed with.

    For one row: caches cut out of several rows are weighed in ``computed``. Later the row's state
    is that of one token, and what it was computed from is freed.
    """
    pieces = (MANY, TWO)
    row = text_request(brief, "row", sum(pieces), max_tokens=FEW, segments=pieces)
    options = EngineOptions(prefix_caching=PrefixCaching())
    return at_once("piece", row, options=options, weigh=Weigh.STORED)


def _counted(trace: Trace) -> bool:
    steps = [s for s in trace.steps if s.pending is not None and len(s.in_stage(Stage.DECODE)) > 1]
    return len(steps) > SHORT


def _lasted(trace: Trace) -> bool:
    steps = [s for s in trace.steps if s.alive is not None and s.in_stage(Stage.DECODE)]
    return len(steps) >= STEPS


def _piece_weighed(trace: Trace) -> bool:
    stored = trace.schedule.weigh is Weigh.STORED
    return stored and trace.kept is not None and trace.kept.counted > 0


def _weighed(trace: Trace) -> bool:
    several = any(len(step.in_stage(Stage.DECODE)) > 1 for step in trace.steps)
    return several and trace.kept is not None and trace.kept.counted > 0


_WEIGHS = frozenset({Capability.WEIGHED})
HELD = Scenario(
    "held",
    125,
    "what rows that decode pile up, and the memory of a cache that outlives its batch",
    frozenset({Capability.STAGES}),
    _held,
    (
        Witness("steps of several rows whose graph was counted", _counted, needs=_WEIGHS).shown_in(
            "decoding"
        ),
        Witness(
            "a kept cache of one of several rows that was weighed", _weighed, needs=_WEIGHS
        ).shown_in("computed"),
        Witness(f"{STEPS} steps after which all that lives was counted", _lasted).shown_in(
            "lasting"
        ),
    ),
)
KEPT = Scenario(
    "kept",
    156,
    "the memory of a cache as it was left, and a prompt that is a kept sequence to its end",
    frozenset({Capability.WEIGHED, Capability.PREFIX_CACHING}),
    _kept,
    (
        Witness("a kept cache of one of several rows that was weighed", _weighed).shown_in(
            "as_left"
        ),
        Witness(
            "a cache kept of a prompt's piece that was weighed",
            _piece_weighed,
            needs=frozenset({Capability.SEGMENTS, Capability.STORED}),
        ).shown_in("piece"),
    ),
)
