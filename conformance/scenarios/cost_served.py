"""The cost of a server's work, asked over HTTP: the counts of ``cost`` that it can record.

The engine's own row decodes while prompts arrive that should share a pass or come late, and during
an answer whose client disconnects.
"""

from __future__ import annotations

from conformance.core.engine import Capability
from conformance.core.engine_options import EngineOptions
from conformance.core.schedule import Removal, Schedule, Stage
from conformance.core.trace import Trace
from conformance.scenarios import witnesses as seen
from conformance.scenarios.build import (
    MEDIUM,
    PIECE,
    SHORT,
    at_once,
    gone,
    produced,
    text_request,
    together,
)
from conformance.scenarios.cost import (
    ENDS,
    FEW,
    LATE,
    LATE_PROMPT,
    MANY,
    TWENTIETH,
    a_hundredth,
    long_counted,
    row,
)
from conformance.scenarios.scenario import Brief, Scenario, Witness


def _served(brief: Brief) -> list[Schedule]:
    short, long, piece = TWENTIETH
    slots = EngineOptions(prefill_batch_size=1, completion_batch_size=2, busy=True, counted=True)
    leaver = text_request(brief, "leaver", SHORT, max_tokens=MANY)
    after = text_request(brief, "next", MEDIUM, variant=1, max_tokens=FEW)
    found = [
        at_once(
            "end",
            *(row(brief, index, count) for index, count in enumerate(ENDS)),
            options=EngineOptions(counted=True),
            contracts=("rows", "at_rest"),
        ),
        at_once(
            "late",
            text_request(brief, LATE, LATE_PROMPT, variant=2, max_tokens=FEW),
            options=EngineOptions(prefill_step_size=PIECE, busy=True, counted=True),
            contracts=("first_token", "others_wait", "others_calls"),
        ),
        Schedule(
            "left",
            (together(leaver), together(after, when=gone("leaver", removed=True))),
            (Removal(("leaver",), produced("leaver", 3)),),
            options=slots,
            contracts=("left",),
        ),
    ]
    if brief.longest is None or long + FEW <= brief.longest:
        rows = [
            text_request(brief, "short", short, max_tokens=FEW),
            text_request(brief, "long", long, max_tokens=FEW),
        ]
        options = EngineOptions(prefill_step_size=piece, busy=True, counted=True)
        found.append(at_once("twentieth", *rows, options=options, contracts=("positions",)))
    return found


def _noted(trace: Trace) -> bool:
    return bool(trace.served)


COST_SERVED = Scenario(
    "cost_served",
    197,
    "what a server's own process computes for requests that wait, join, end and leave",
    frozenset({Capability.SERVED, Capability.COUNTED, Capability.CANCEL, Capability.CHUNKED}),
    _served,
    (
        Witness("steps that the server noted", _noted),
        Witness("a prompt beside one of a hundred times its length", a_hundredth).shown_in(
            "twentieth"
        ),
        seen.removed_from(Stage.DECODE).shown_in("left"),
    ),
    applies=long_counted,
)
