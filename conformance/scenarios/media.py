"""Rungs with images, videos and sounds in prompts, or state left on the model; and witnesses."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from conformance.core.engine import Capability
from conformance.core.engine_options import EngineOptions
from conformance.core.family import Family
from conformance.core.schedule import Removal, Request, Schedule, Stage, Trigger
from conformance.core.trace import Trace
from conformance.scenarios import witnesses as seen
from conformance.scenarios.build import (
    IN_PIECES,
    LASTING,
    LONG,
    MEDIUM,
    PIECE,
    SHORT,
    TWO,
    at_once,
    gone,
    in_prefill,
    media_request,
    one_by_one,
    produced,
    requests_of,
    text_request,
    together,
)
from conformance.scenarios.scenario import Brief, Scenario, Witness
from conformance.scenarios.witnesses import last_rows_left, longest_leaves


def beside_text() -> Witness:
    """A request with media and one without decoded together after one prefill."""
    return Witness("media beside text from the start", lambda trace: _together(trace, Stage.QUEUED))


def text_joins() -> Witness:
    """Text arrived when a request with media had produced tokens, and both then decoded."""
    return Witness("text that joins media", lambda trace: _joined(trace, late_media=False))


def joins_text() -> Witness:
    """A request with media arrived when text had produced tokens, and both then decoded."""
    return Witness("media that joins text", lambda trace: _joined(trace, late_media=True))


def cut_in_span() -> Witness:
    """A piece of prefill ended inside a medium, not at its edge."""

    def seen(trace: Trace) -> bool:
        done: dict[str, int] = {}
        spans = {r.request_id: [m.span for m in r.media] for r in trace.schedule.requests}
        for step in trace.steps:
            for name, count in step.output.processed.items():
                done[name] = done.get(name, 0) + count
                if any(start < done[name] < stop for start, stop in spans.get(name, ())):
                    return True
        return False

    return Witness("a piece of prefill that ends within a medium", seen)


def removed_from(stage: Stage) -> Witness:
    """A request with media was removed in ``stage``, and one without was completed."""

    def seen(trace: Trace) -> bool:
        media = _with_media(trace)
        texts = {r.request_id for r in trace.schedule.requests} - media
        gone = any(step.removed_from.get(n) is stage for step in trace.steps for n in media)
        return gone and any(trace.stream(name).finish_reason for name in texts)

    return Witness(f"media removed in {stage}", seen)


def last_row_left(stage: Stage, *, media: bool) -> Witness:
    """The last row left has media, or has none: see ``witnesses.last_rows_left``."""

    def seen(trace: Trace) -> bool:
        return any((name in _with_media(trace)) is media for name in last_rows_left(trace, stage))

    name = f"{'media' if media else 'text'} whose longer neighbour was removed in {stage}"
    return Witness(name, seen, needs=longest_leaves(stage).needs)


def one_after_another() -> Witness:
    """At least three requests that were never in the engine's batch together."""

    def seen(trace: Trace) -> bool:
        busy = [
            {n for n, at in step.stages.items() if at in (Stage.PREFILL, Stage.DECODE)}
            for step in trace.steps
        ]
        worked = set().union(*busy)
        return len(worked) >= 3 and all(len(names) <= 1 for names in busy)

    return Witness("three requests one after another", seen)


def _with_media(trace: Trace) -> set[str]:
    return {r.request_id for r in trace.schedule.requests if r.media}


def _together(trace: Trace, before: Stage) -> bool:
    first = trace.steps[0].in_stage(before) if trace.steps else ()
    media = _with_media(trace)
    for step in trace.steps:
        decoding = set(step.in_stage(Stage.DECODE)) & set(first)
        if decoding & media and decoding - media:
            return True
    return False


def _joined(trace: Trace, *, late_media: bool) -> bool:
    media, produced = _with_media(trace), set[str]()
    joined: set[tuple[str, str]] = set()
    for step in trace.steps:
        decoding = step.in_stage(Stage.DECODE)
        for late in step.in_stage(Stage.QUEUED):
            joined |= {(late, early) for early in decoding if early in produced}
        for late, early in joined:
            kinds = (late in media, early in media)
            if kinds == (late_media, not late_media) and {late, early} <= set(decoding):
                return True
        produced |= {event.request_id for event in step.output.events}
    return False


def _takes_media(family: Family) -> str:
    return "" if set(family.facts.modalities) - {"text"} else "it takes text only"


def _takes_media_in_pieces(family: Family) -> str:
    if where := family.facts.uncut_media:
        return f"the library prefills prompts with media whole: {where}"
    return _takes_media(family)


def _takes_images(family: Family) -> str:
    return "" if "image" in family.facts.modalities else "it takes no images"


def _mixed(brief: Brief) -> list[Schedule]:
    kinds = [kind for kind in brief.modalities if kind != "text"]
    return [
        schedule
        for kind in kinds
        for make in (_beside, _joins, _cancelled, _slots)
        for schedule in make(brief, kind)
    ]


def _beside(brief: Brief, kind: str) -> Iterator[Schedule]:
    """All arrive at the start: with text, in two sizes, several in one prompt, the same twice."""
    one = media_request(brief, "one", kind)
    long, short = text_request(brief, "long", LONG), text_request(brief, "short", SHORT)
    yield at_once(f"{kind}_beside_text", one, long, short)
    other = media_request(brief, "other", kind, size=1, content=1)
    yield at_once(f"{kind}_two_sizes", one, other)
    yield at_once(f"{kind}_same_twice", one, media_request(brief, "again", kind), short)
    if kind not in brief.single:
        several = media_request(brief, "several", kind, content=1, count=2)
        yield at_once(f"{kind}_several", several, one, short)


def _images_together(brief: Brief) -> list[Schedule]:
    """Media of one size and of two; texts of other lengths; a prompt without media."""

    def at_edge(name: str, text: int, **more: Any) -> Request:
        place = {"before": text, "after": 0} if brief.media_last else {"before": 0, "after": text}
        return media_request(brief, name, "image", **place, **more)

    one, other = at_edge("one", SHORT), at_edge("other", SHORT, size=1, content=2)
    longer = at_edge("longer", MEDIUM, content=1, max_tokens=3)
    schedules = [
        at_once("one_size", one, longer),
        at_once("sizes_and_text", one, other, text_request(brief, "text", LONG)),
    ]
    if brief.beside:
        # Here the first token already shows whose image a row used; later ones may not.
        first = [at_edge(f"first_{n}", SHORT, content=n, max_tokens=1) for n in range(2)]
        schedules.append(at_once("first_tokens", *first))
    return schedules


def _joins(brief: Brief, kind: str) -> Iterator[Schedule]:
    first = media_request(brief, "one", kind, max_tokens=LASTING)
    text = text_request(brief, "text", SHORT)
    yield Schedule(f"text_joins_{kind}", (together(first), together(text, when=produced("one", 1))))
    long = text_request(brief, "long", MEDIUM, max_tokens=LASTING)
    late = media_request(brief, "late", kind, size=1, content=1)
    arrivals = (together(long), together(late, when=produced("long", 1)))
    yield Schedule(f"{kind}_joins_text", arrivals)


def _in_pieces(brief: Brief) -> list[Schedule]:
    kinds = [kind for kind in brief.modalities if kind != "text"]
    return [schedule for kind in kinds for schedule in _chunks(brief, kind)]


def _chunks(brief: Brief, kind: str) -> Iterator[Schedule]:
    """A piece of prefill ends at the start of a medium, within it, at its end."""
    # The longest row has no padding: its pieces are those of its single stream.
    one = media_request(brief, "one", kind, after=LONG)
    long, short = text_request(brief, "long", LONG), text_request(brief, "short", SHORT)
    start, stop = one.media[0].span
    places = {"start": start, "inside": (start + stop) // 2, "end": stop}
    for where, size in places.items():
        options = EngineOptions(prefill_step_size=max(size, 1))
        arrivals = (together(one, long, short),)
        yield Schedule(f"{kind}_cut_at_{where}", arrivals, options=options)
    padded = media_request(brief, "padded", kind)
    options = IN_PIECES
    yield at_once(f"{kind}_cut_and_padded", padded, long, options=options)
    yield _removal(brief, kind, "prefill", in_prefill("one", PIECE), options)
    yield from _longest(brief, kind, options)


def _cancelled(brief: Brief, kind: str) -> Iterator[Schedule]:
    yield _removal(brief, kind, "decode", produced("one", 2), EngineOptions())


def _removal(
    brief: Brief, kind: str, stage: str, when: Trigger, options: EngineOptions
) -> Schedule:
    """A request with a medium is removed while another with text continues; one more arrives."""
    one = media_request(brief, "one", kind, after=MEDIUM, max_tokens=LASTING)
    text = text_request(brief, "text", LONG, max_tokens=LASTING)
    late = text_request(brief, "next", SHORT, max_tokens=3)
    return Schedule(
        f"{kind}_cancelled_in_{stage}",
        (together(one, text), together(late, when=gone("one", removed=True))),
        (Removal(("one",), when),),
        options=options,
    )


def _longest(brief: Brief, kind: str, options: EngineOptions) -> Iterator[Schedule]:
    """The longer row, with or without the medium, is removed in prefill: one padded row is left.

    For removal in decode, requests without media suffice: see ``cancel``.
    """
    medium = media_request(brief, "left", kind)
    rows = {
        f"{kind}_longest": (
            media_request(brief, "long", kind, after=LONG),
            text_request(brief, "left", MEDIUM),
        ),
        f"{kind}_left": (text_request(brief, "long", len(medium.prompt) + MEDIUM), medium),
    }
    for name, pair in rows.items():
        late = text_request(brief, "next", TWO, max_tokens=3)
        yield Schedule(
            f"{name}_in_prefill",
            (together(*pair), together(late, when=gone("long", removed=True))),
            (Removal(("long",), in_prefill("long", PIECE)),),
            options=options,
        )


def _slots(brief: Brief, kind: str) -> Iterator[Schedule]:
    """One slot: a medium, one of another size, then text."""
    requests = [
        media_request(brief, "one", kind, max_tokens=3),
        media_request(brief, "other", kind, size=1, content=1, max_tokens=3),
        text_request(brief, "text", LONG, max_tokens=3),
    ]
    options = EngineOptions(prefill_batch_size=1, completion_batch_size=1)
    yield at_once(f"{kind}_after_{kind}", *requests, options=options)


# Tokens of a prompt beyond the positions that models with dynamic RoPE are made for.
_FAR = 70


def _stale(brief: Brief) -> list[Schedule]:
    """Requests in turn on one model, each different from the previous one; short around a longest.

    What a model keeps of the longest would move those after it, and in a later run also the first.
    """
    most = _FAR if brief.longest is None else min(_FAR, brief.longest - 4)
    lengths = {"again": SHORT, "long": most, "short": SHORT, "medium": MEDIUM}
    requests = requests_of(brief, lengths, 4)
    for kind in brief.modalities:
        if kind != "text":
            more: dict[str, Any] = {"max_tokens": 3}
            requests = [
                media_request(brief, kind, kind, max_tokens=4),
                text_request(brief, f"after_{kind}", SHORT, **more),
                media_request(brief, f"other_{kind}", kind, size=1, content=1, **more),
                *requests,
            ]
    return [one_by_one("in_turn", requests), one_by_one("in_reverse", requests[::-1])]


_NEEDS = frozenset({Capability.MEDIA, Capability.LATE_JOIN, Capability.CANCEL, Capability.STAGES})
MIXED_MODALITY = Scenario(
    "mixed_modality",
    112,
    "images, videos and sounds beside text",
    _NEEDS,
    _mixed,
    (
        beside_text().shown_in(
            "*_beside_text", "*_same_twice", "*_several", "*_cancelled_in_decode"
        ),
        text_joins().shown_in("text_joins_*"),
        joins_text().shown_in("*_joins_text"),
        removed_from(Stage.DECODE).shown_in("*_cancelled_in_decode"),
        one_after_another().shown_in("*_after_*"),
    ),
    applies=_takes_media,
)
IMAGES_TOGETHER = Scenario(
    "images_together",
    111,
    "an image where the library's chat template puts it, before or after all text",
    frozenset({Capability.MEDIA}),
    _images_together,
    (seen.rows_together(2),),
    applies=_takes_images,
)
MEDIA_IN_PIECES = Scenario(
    "media_in_pieces",
    113,
    "prefill in pieces that end before, within and after an image, a video or a sound",
    _NEEDS | {Capability.CHUNKED},
    _in_pieces,
    (
        cut_in_span().shown_in("*_cut_at_inside"),
        removed_from(Stage.PREFILL).shown_in("*_cancelled_in_prefill", "*_longest_in_prefill"),
        last_row_left(Stage.PREFILL, media=False).shown_in("*_longest_in_prefill"),
        last_row_left(Stage.PREFILL, media=True).shown_in("*_left_in_prefill"),
    ),
    applies=_takes_media_in_pieces,
)
STALE_STATE = Scenario(
    "stale_state",
    114,
    "requests one after the other: what one leaves on the model changes nothing for the next",
    frozenset({Capability.LATE_JOIN}),
    _stale,
    (seen.one_row_calls(), one_after_another()),
)
