"""The cost of work: schedules whose calls, rows, reads and bytes are counted and have limits.

Results are checked as in any scenario. The limits are in ``core/contracts.toml``.
"""

from __future__ import annotations

from conformance.core.engine import Capability
from conformance.core.engine_options import KV_GROUPS, EngineOptions, KvQuant, PrefixCaching
from conformance.core.family import Family
from conformance.core.representatives import Table, chosen_of, representatives
from conformance.core.schedule import Removal, Request, Schedule, Stage, Weigh
from conformance.core.trace import Trace
from conformance.scenarios import reuse_witnesses as reuse
from conformance.scenarios import witnesses as seen
from conformance.scenarios.build import (
    IN_PIECES,
    LONG,
    MEDIUM,
    PIECE,
    SHORT,
    at_once,
    begun_otherwise,
    gone,
    produced,
    text_request,
    together,
)
from conformance.scenarios.scenario import Brief, Scenario, Witness

LATE = "late"
"""The request that joins decoding rows."""
# Tokens of the short and the long prompt, and of a piece: as published, and a fraction of it.
PUBLISHED, TWENTIETH = (100, 10_000, 2048), (5, 500, 102)
# Output tokens of the rows during whose decoding a late prompt is prefilled, and of that prompt.
LASTING, FEW = 12, 2
# Steps of a long answer, each third of which exceeds mlx-vlm's clearing interval (50).
MANY, SOME = 2000, 200
LATE_PROMPT = 4 * PIECE + 1
ENDS = (2, 9, 4, 7)
_BLOCK = 4


def _counted(family: Family) -> str:
    """Why the family's work is not counted; empty if it is."""
    return _not_among(family, representatives().counted)


def _quantized_counted(family: Family) -> str:
    return _not_among(family, representatives().counted_quantized)


def long_counted(family: Family) -> str:
    """The scenario held checks the caches of other families, after a shorter answer."""
    return _not_among(family, representatives().counted_long)


def _one_counted(family: Family) -> str:
    """Depends only on the engine, so the first family of each library shows it."""
    counted = representatives().counted
    return _not_among(family, {library: names[:1] for library, names in counted.items()})


def _not_among(family: Family, table: Table) -> str:
    chosen = chosen_of(table, family)
    return "" if family.name in chosen else f"the work of {', '.join(chosen)} is counted"


def _positions(brief: Brief) -> list[Schedule]:
    sizes = {"twentieth": TWENTIETH, "published": PUBLISHED}
    return [
        at_once(
            name,
            text_request(brief, "short", short, max_tokens=FEW),
            text_request(brief, "long", long, max_tokens=FEW),
            options=EngineOptions(prefill_step_size=piece),
            contracts=("positions",),
        )
        for name, (short, long, piece) in sizes.items()
        if brief.longest is None or long + FEW <= brief.longest
    ]


def row(brief: Brief, index: int, max_tokens: int) -> Request:
    """Several rows of the same length, so that nothing is padded."""
    return text_request(brief, f"r{index}", MEDIUM, variant=index, max_tokens=max_tokens)


def _rows(brief: Brief) -> list[Schedule]:
    ending = [row(brief, index, count) for index, count in enumerate(ENDS)]
    counted = ("rows", "gone", "bytes_left")
    schedules = [at_once("end", *ending, contracts=counted)]
    if Capability.CANCEL in brief.capabilities:
        rows = [row(brief, index, LASTING) for index in range(3)]
        removals = (
            Removal(("r1",), produced("r1", 3)),
            Removal(("r0", "r2"), produced("r2", 6)),
        )
        schedules.append(at_once("removed", *rows, removals=removals, contracts=counted))
    return schedules


def _late(brief: Brief) -> list[Schedule]:
    rows = [row(brief, index, LASTING) for index in range(2)]
    late = text_request(brief, LATE, LATE_PROMPT, variant=2, max_tokens=FEW)
    return [
        Schedule(
            "late",
            (together(*rows), together(late, when=produced("r0", 2))),
            options=IN_PIECES,
            contracts=("first_token", "others_wait", "others_calls"),
        )
    ]


def _reads(brief: Brief) -> list[Schedule]:
    rows = [row(brief, index, LASTING) for index in range(3)]
    return [
        at_once("steps", *rows, weigh=Weigh.READS, contracts=("host_reads",)),
    ]


def _lasting(brief: Brief) -> list[Schedule]:
    sizes = {"lasting": SOME, "long_lasting": MANY}
    return [
        at_once(
            name,
            text_request(brief, "only", SHORT, max_tokens=steps + 1),
            weigh=Weigh.ALIVE if steps == SOME else Weigh.SAMPLED,
            contracts=("arrays", "graph", "bytes_left"),
        )
        for name, steps in sizes.items()
        if brief.longest is None or steps + SHORT < brief.longest
    ]


def _quantized(brief: Brief) -> list[Schedule]:
    sizes = brief.heads()
    group = max((g for g in KV_GROUPS if sizes and not any(s % g for s in sizes)), default=0)
    rows = [row(brief, index, FEW) for index in range(2)]
    kinds = {"plain": None} | {f"bits_{b}": KvQuant(b, group_size=group) for b in (8, 4) if group}
    return [
        at_once(
            name,
            *rows,
            options=EngineOptions(kv=kv),
            contracts=(f"bytes_{kv.bits:g}",) if kv is not None else (),
        )
        for name, kv in kinds.items()
    ]


def _prefix(brief: Brief) -> list[Schedule]:
    pieces = (LONG - SHORT, SHORT) if Capability.SEGMENTS in brief.capabilities else ()
    first = text_request(brief, "first", LONG, max_tokens=FEW, segments=pieces)
    kept = first.prompt
    own = begun_otherwise(
        brief, brief.prompt(MEDIUM, variant=7), brief.solo(first, EngineOptions()).tokens[:1]
    )
    longer = Request("longer", kept + own, FEW)
    caching = PrefixCaching(block_size=_BLOCK, interval=_BLOCK)
    return [
        Schedule(
            "longer",
            (together(first), together(longer, when=gone("first"))),
            options=EngineOptions(prefix_caching=caching),
            contracts=("prefix",),
        )
    ]


def a_hundredth(trace: Trace) -> bool:
    """Both prompts arrived at once, and the long one took several pieces."""
    lengths = sorted(len(request.prompt) for request in trace.schedule.requests)
    pieces = sum(call.length > 1 for call in trace.computed)
    return lengths[0] * 100 == lengths[-1] and pieces > 3


def _read(trace: Trace) -> bool:
    steps = [s for s in trace.steps if s.reads is not None and len(s.in_stage(Stage.DECODE)) > 2]
    return len(steps) > LASTING // 2


def _has_lasted(trace: Trace) -> bool:
    return sum(step.alive is not None for step in trace.steps) > SOME


def _of_bits(bits: int) -> Witness:
    return Witness(
        f"layers of {bits} bits",
        lambda trace: any(layer.quantized for step in trace.steps for layer in step.layers),
    ).shown_in(f"bits_{bits}")


_METERED = frozenset({Capability.METERED})
_STAGED = _METERED | {Capability.STAGES}
COSTS: tuple[Scenario, ...] = (
    Scenario(
        "cost_positions",
        190,
        "positions computed for a short prompt beside one of a hundred times its length",
        _METERED | {Capability.CHUNKED},
        _positions,
        (Witness("a prompt beside one of a hundred times its length, in pieces", a_hundredth),),
        applies=_one_counted,
    ),
    Scenario(
        "cost_rows",
        191,
        "rows computed for requests that have ended or were removed, and their bytes",
        _METERED,
        _rows,
        (
            seen.rows_together(len(ENDS)).shown_in("end"),
            seen.leaves_early().shown_in("end"),
            seen.removed_from(Stage.DECODE).shown_in("removed"),
        ),
        applies=_counted,
    ),
    Scenario(
        "cost_late",
        192,
        "steps that a late request waits, and how long others wait for it",
        _STAGED | {Capability.LATE_JOIN, Capability.CHUNKED},
        _late,
        (seen.late_join(),),
        applies=_counted,
    ),
    Scenario(
        "cost_reads",
        193,
        "how often the host waits for an array in a decode step",
        _STAGED,
        _reads,
        (Witness("steps of three rows whose reads were counted", _read),),
        applies=_counted,
    ),
    Scenario(
        "cost_lasting",
        194,
        "arrays and graphs that a long answer piles up",
        _STAGED,
        _lasting,
        (Witness(f"{SOME} steps after which all that lives was counted", _has_lasted),),
        applies=long_counted,
    ),
    Scenario(
        "cost_quantized",
        195,
        "bytes of keys and values in fewer bits",
        _METERED | {Capability.QUANTIZED},
        _quantized,
        (_of_bits(8), _of_bits(4)),
        applies=_quantized_counted,
    ),
    Scenario(
        "cost_prefix",
        196,
        "tokens of a kept prefix that are computed again",
        _METERED | {Capability.PREFIX_CACHING},
        _prefix,
        (reuse.hit(),),
        applies=_counted,
    ),
)


# Over HTTP: the engine's own row decodes while prompts arrive that should share a pass or come
# late, and during an answer whose client disconnects.
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
