"""The rung of quantized keys and values: changing batches, before and after the start."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from conformance.core.engine import Capability
from conformance.core.engine_options import KV_GROUPS, EngineOptions, KvQuant
from conformance.core.errors import Unsupported
from conformance.core.schedule import Arrival, Request, Schedule, Stage
from conformance.core.trace import Step, Trace
from conformance.scenarios import witnesses as seen
from conformance.scenarios.build import (
    LONG,
    MEDIUM,
    SHORT,
    TWO,
    media_request,
    produced,
    text_request,
    together,
)
from conformance.scenarios.scenario import Brief, Scenario, Witness


def quantized() -> Witness:
    """Some layer's cache was quantized."""
    return Witness("a quantized cache", lambda trace: any(map(_is_quantized, trace.steps)))


def row_leaves() -> Witness:
    """A row left a quantized batch in which another kept decoding."""

    def seen(trace: Trace) -> bool:
        return any(
            set(before.in_stage(Stage.DECODE)) - set(after.in_stage(Stage.DECODE))
            and set(before.in_stage(Stage.DECODE)) & set(after.in_stage(Stage.DECODE))
            for before, after in _decoding(trace)
        )

    return Witness("a row that leaves a quantized batch", seen)


def row_joins() -> Witness:
    """A row joined a quantized batch in which another was already decoding."""

    def seen(trace: Trace) -> bool:
        return any(
            set(after.in_stage(Stage.DECODE)) - set(before.in_stage(Stage.DECODE))
            and set(before.in_stage(Stage.DECODE)) & set(after.in_stage(Stage.DECODE))
            for before, after in _decoding(trace)
        )

    return Witness("a row that joins a quantized batch", seen)


def either_side_of_start() -> Witness:
    """Prompts shorter and longer than the start were in one batch."""

    def seen(trace: Trace) -> bool:
        kv = trace.schedule.options.kv
        if kv is None:
            return False
        short = {r.request_id for r in trace.schedule.requests if len(r.prompt) < kv.start}
        return any(
            set(rows) & short and set(rows) - short
            for step in trace.steps
            for rows in (step.in_stage(Stage.PREFILL), step.in_stage(Stage.DECODE))
        )

    return Witness("rows on either side of the start", seen)


def _decoding(trace: Trace) -> list[tuple[Step, Step]]:
    """Each step that ended with a quantized cache, and the next one."""
    return [(step, after) for step, after in pairwise(trace.steps) if _is_quantized(step)]


def _is_quantized(step: Step) -> bool:
    return any(layer.quantized for layer in step.layers)


# The start of TurboQuant: above the short prompts, in the middle of the others.
START = 8
# Pieces end within prompts, but take fewer steps than the pieces of other scenarios.
CUT = 8
# 3 bits for keys and 4 for values; whole bits, which need the scheme's name; 2 bits and 3.
TURBO, WHOLE, SMALL = (KvQuant(bits, scheme="turboquant") for bits in (3.5, 4, 2.5))


def kinds_of(brief: Brief) -> tuple[dict[str, KvQuant], dict[str, KvQuant]]:
    """Uniform kinds by name, those of the smallest groups first, and TurboQuant; either may lack.

    Raises:
        Unsupported: the family's keys and values can be quantized in no way.
    """
    sizes = brief.heads()
    if not sizes:
        raise Unsupported("no layer keeps keys and values that the library could quantize")
    groups = [group for group in KV_GROUPS if not any(size % group for size in sizes)]
    kinds = {
        f"uniform_{bits}_{group}": KvQuant(bits, group_size=group)
        for group in groups
        for bits in (8, 4)
    }
    turbo = {"turbo": TURBO} if "turboquant" in brief.schemes else {}
    if not kinds and not turbo:
        listed = ", ".join(map(str, sorted(sizes)))
        raise Unsupported(
            f"heads of {listed} elements can't be cut into groups of 32: not supported"
        )
    return kinds, turbo


def _quantized(brief: Brief) -> list[Schedule]:
    kinds, turbo = kinds_of(brief)
    first = next(iter(kinds.values()), TURBO)
    schedules = [_changing(brief, "plain", None)]
    whole = {"turbo_whole": WHOLE} if turbo else {}
    schedules += [_changing(brief, name, kv) for name, kv in (kinds | turbo | whole).items()]
    schedules += _unpadded(brief, dict(list(kinds.items())[:1]) | turbo)
    schedules += _starts(brief, SMALL if turbo else first)
    alone = dict(list(kinds.items())[:2]) | turbo | {"start": _from_start(first)}
    only = text_request(brief, "only", MEDIUM, max_tokens=2)
    schedules += [_schedule(f"alone_{name}", kv, together(only)) for name, kv in alone.items()]
    if "image" in brief.modalities and Capability.MEDIA in brief.capabilities:
        uniform = {"uniform": first} if kinds else {}
        schedules += _images(brief, uniform | ({"turbo": WHOLE} if turbo else {}))
    return schedules


def _changing(brief: Brief, name: str, kv: KvQuant | None) -> Schedule:
    """Prompts of different lengths; the first rows leave, and a longer one joins.

    The last row decodes two or more steps after each change: the first of them was computed before.
    """
    first = [
        text_request(brief, name, length, max_tokens=out)
        for name, length, out in (("two", TWO, 2), ("long", LONG, 3), ("short", SHORT, 6))
    ]
    late = together(text_request(brief, "late", MEDIUM, max_tokens=2), when=produced("short", 1))
    options = EngineOptions(prefill_step_size=CUT, kv=kv)
    return Schedule(name, (together(*first), late), options=options)


def _unpadded(brief: Brief, kinds: dict[str, KvQuant]) -> Iterator[Schedule]:
    """Prompts of one length; the first rows leave: correct even if padding is wrong."""
    rows = (("first", 2), ("second", 3), ("last", 6))
    for name, kv in kinds.items():
        asked = [
            text_request(brief, row, MEDIUM, variant=at, max_tokens=out)
            for at, (row, out) in enumerate(rows)
        ]
        yield _schedule(f"unpadded_{name}", kv, together(*asked))


def _starts(brief: Brief, kind: KvQuant) -> Iterator[Schedule]:
    """Prompts all shorter than the start, all longer, or mixed; together, or one joining later."""

    def row(name: str, length: int, max_tokens: int = 2) -> Request:
        return text_request(brief, name, length, max_tokens=max_tokens)

    kv = _from_start(kind)
    # Passes the start while it decodes.
    crossing = row("crossing", SHORT, START - SHORT + 2)
    other = together(row("other", TWO), when=produced("crossing", 1))
    yield _schedule("start_below", kv, together(crossing), other)
    yield _schedule("start_above", kv, together(row("a", MEDIUM), row("b", LONG)))
    yield _schedule("start_beside", kv, together(row("below", SHORT), row("above", MEDIUM)))
    late = together(row("above", MEDIUM), when=produced("below", 1))
    yield _schedule("start_above_joins", kv, together(row("below", SHORT, 4)), late)
    late = together(row("below", SHORT), when=produced("above", 1))
    yield _schedule("start_below_joins", kv, together(row("above", MEDIUM, 4)), late)


def _images(brief: Brief, kinds: dict[str, KvQuant]) -> Iterator[Schedule]:
    image = media_request(brief, "image", "image", max_tokens=2)
    text = text_request(brief, "text", SHORT, max_tokens=3)
    for name, kv in kinds.items():
        yield _schedule(f"image_{name}", kv, together(image, text))


def _from_start(kv: KvQuant) -> KvQuant:
    return KvQuant(kv.bits, kv.group_size, kv.scheme, START)


def _schedule(name: str, kv: KvQuant, *arrivals: Arrival) -> Schedule:
    return Schedule(name, arrivals, options=EngineOptions(kv=kv))


QUANTIZED = Scenario(
    "quantized",
    116,
    "keys and values in fewer bits, from the first token or from a later one",
    frozenset({Capability.QUANTIZED, Capability.LATE_JOIN, Capability.CHUNKED}),
    _quantized,
    (
        quantized().shown_in("uniform_*", "turbo", "alone_*"),
        row_leaves().shown_in("uniform_*", "turbo", "unpadded_*"),
        row_joins().shown_in("uniform_*", "turbo"),
        either_side_of_start().shown_in("start_beside"),
        seen.padding().shown_in("plain", "uniform_*", "turbo", "start_above", "start_beside"),
    ),
)
