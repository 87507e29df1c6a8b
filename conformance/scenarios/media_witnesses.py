"""Witnesses about requests with media: the rows next to them, and where spans were cut."""

from __future__ import annotations

from conformance.core.schedule import Stage
from conformance.core.trace import Trace
from conformance.scenarios.scenario import Witness
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
