"""Rungs in which requests arrive later: late joins, rotating windows, extracted caches."""

from __future__ import annotations

from dataclasses import dataclass

from msgspec.structs import replace

from conformance.core.engine import Capability
from conformance.core.engine_options import EngineOptions
from conformance.core.family import Family
from conformance.core.schedule import Continuation, Request, Schedule
from conformance.core.trace import Trace
from conformance.scenarios import witnesses as seen
from conformance.scenarios.build import (
    IN_PIECES,
    LASTING,
    LONG,
    MEDIUM,
    ONE,
    PIECE,
    SHORT,
    TWO,
    at_once,
    gone,
    produced,
    requests_of,
    text_request,
    together,
)
from conformance.scenarios.engine_sampling import SECOND, bias
from conformance.scenarios.lengthy import pieces_of_windows, turns
from conformance.scenarios.scenario import Brief, Scenario, Witness

# For families without a window: the bound, in tokens, of the library's caches.
BOUND = 8
# A bound that is not reached, and longer than most heads are wide.
ROOM = 40
_OPTIONS = frozenset(
    {
        Capability.SEGMENTS,
        Capability.CHUNKED,
        Capability.SAMPLERS,
        Capability.PROCESSORS,
        Capability.STOP,
    }
)
# Segments of one prompt, of a token each.
_MANY = 35
# A longer window, of a real checkpoint, would take thousands of steps; its tiny family has a short
# one.
LONGEST_WINDOW = 256


def _staggered(brief: Brief) -> list[Schedule]:
    long, short = (
        text_request(brief, "long", LONG, max_tokens=LASTING),
        text_request(brief, "short", SHORT),
    )
    two, one = (
        text_request(brief, "two", TWO, max_tokens=4),
        text_request(brief, "one", ONE, max_tokens=3),
    )
    into_long = (together(long), together(short, two, when=produced("long", 1)))
    into_short = (together(short), together(long, when=produced("short", 2)))
    schedules = [
        Schedule("short_into_long", (*into_long, together(one, when=produced("long", 3)))),
        Schedule("long_into_short", into_short),
    ]
    if Capability.CHUNKED in brief.capabilities:
        schedules.append(Schedule("long_into_short_chunked", into_short, options=IN_PIECES))
    return schedules


def _window(brief: Brief) -> list[Schedule]:
    window = brief.window or BOUND
    lengths = (2 * window + 3, window - 1, window, window + 1)
    # The first produces a whole window; the others only have to cross its edge.
    outputs = (window + 2, 4, 4, 4)
    requests = requests_of(brief, lengths, outputs)
    late = text_request(brief, "late", window + 1, variant=1, max_tokens=3)
    arrivals = (together(*requests), together(late, when=produced(f"r{lengths[0]}", window - 3)))
    bound = BOUND if brief.bounded and not brief.window else None
    prefix = "bounded_" if bound else ""
    schedules = [
        Schedule(
            prefix + name,
            arrivals,
            options=EngineOptions(prefill_step_size=size, max_kv_size=bound),
        )
        for name, size in _pieces(brief).items()
    ]
    if brief.window and Capability.CHUNKED in brief.capabilities:
        schedules += [turns(brief, brief.window), pieces_of_windows(brief, brief.window)]
    return schedules


def _brief(brief: Brief) -> Schedule:
    """The extracted cache is shorter than a window, whose storage is allocated as a whole."""
    first = text_request(brief, "first", TWO, max_tokens=2)
    more = text_request(
        brief, "more", SHORT, variant=1, max_tokens=3, continues=Continuation("first")
    )
    return Schedule("brief", (together(first), together(more, when=gone("first"))))


def _roomy(brief: Brief) -> Schedule:
    """Bounded caches that are never full: storage exceeds the used part and a head's width.

    A piece of one token makes the storage grow; the piece after it must not attend to the free
    part. Then another request continues from a cache extracted from such storage.
    """
    pieces = text_request(brief, "pieces", LONG, segments=(17, 1, 5), max_tokens=3)
    plain = text_request(brief, "plain", MEDIUM, variant=1, max_tokens=4)
    more = text_request(
        brief, "more", TWO, variant=2, max_tokens=3, continues=Continuation("pieces")
    )
    arrivals = (together(pieces, plain), together(more, when=gone("pieces")))
    return Schedule("roomy", arrivals, options=EngineOptions(max_kv_size=ROOM))


def _pieces(brief: Brief) -> dict[str, int]:
    pieces = {"whole": EngineOptions().prefill_step_size}
    return pieces | ({"chunked": PIECE} if Capability.CHUNKED in brief.capabilities else {})


def _window_in_reach(family: Family) -> str:
    window = family.facts.window
    if window is None or window <= LONGEST_WINDOW:
        return ""
    return (
        f"its window of {window} tokens is too long to exceed; at most {LONGEST_WINDOW} is possible"
    )


@dataclass(frozen=True)
class _PastWindow:
    """The window differs by family, so the witness derives it from the schedule's requests."""

    by_output: bool

    def __call__(self, trace: Trace) -> bool:
        window = trace.schedule.options.max_kv_size
        requests = trace.schedule.requests
        if window is None:  # the second request was made one token shorter than the window
            window = len(requests[1].prompt) + 1
        if self.by_output:
            return any(len(trace.events(r.request_id)) > window for r in requests)
        return any(len(r.prompt) > 2 * window for r in requests)


def _prompt_cache(brief: Brief) -> list[Schedule]:
    first = text_request(brief, "first", MEDIUM, max_tokens=3)
    cold = text_request(brief, "cold", LONG, max_tokens=3)
    more = text_request(
        brief, "more", SHORT, variant=1, max_tokens=3, continues=Continuation("first")
    )
    other = text_request(
        brief, "other", TWO, variant=1, max_tokens=3, continues=Continuation("first")
    )
    finished = (together(first), together(more, cold, other, when=gone("first")))
    schedules = [Schedule("finished", finished), _between(brief)]
    if Capability.SAVED in brief.capabilities:
        schedules.append(_saved(brief))
    if Capability.LATE_JOIN in brief.capabilities:
        source = text_request(brief, "source", LONG, max_tokens=LASTING)
        fork = text_request(
            brief, "fork", SHORT, variant=2, max_tokens=3, continues=Continuation("source", 3)
        )
        arrivals = (together(source), together(fork, when=produced("source", 3)))
        schedules.append(Schedule("live", arrivals))
    if Capability.SEGMENTS in brief.capabilities:
        schedules += [_brief(brief), *([_roomy(brief)] if brief.bounded else [])]
    if {Capability.SEGMENTS, Capability.CHUNKED} <= brief.capabilities:
        pieces = [
            text_request(brief, "three", MEDIUM, segments=(3, 6, 2), max_tokens=3),
            text_request(brief, "two", LONG, segments=(8, 15), max_tokens=3),
            text_request(brief, "last_alone", SHORT, segments=(4, 1), max_tokens=3),
            text_request(brief, "plain", MEDIUM, variant=1, max_tokens=3),
        ]
        schedules.append(at_once("segments", *pieces, options=IN_PIECES))
    if brief.capabilities >= _OPTIONS:
        schedules.append(_segments_with_options(brief))
    return schedules


def _of_many_segments(brief: Brief) -> list[Request]:
    row = text_request(brief, "many", _MANY, variant=1, segments=(1,) * _MANY, max_tokens=3)
    fits = brief.longest is None or brief.longest >= _MANY + row.max_tokens
    return [row] if fits else []


def _segments_with_options(brief: Brief) -> Schedule:
    """Prompts in segments, each with an option of its own, as a server inserts them."""
    first = text_request(brief, "first", SHORT, max_tokens=3)
    ended = text_request(brief, "ended", SHORT, variant=2, segments=(2, 3), max_tokens=8)
    tokens = brief.solo(ended, IN_PIECES).tokens
    rows = [
        text_request(brief, "second", MEDIUM, segments=(3, 6, 2), max_tokens=5, sampler=SECOND),
        text_request(
            brief, "biased", LONG, segments=(8, 15), max_tokens=6, processors=(bias(brief, 1),)
        ),
        replace(ended, stop=(tokens[2:4],)),
        text_request(
            brief, "more", SHORT, variant=1, segments=(4, 1), continues=Continuation("first")
        ),
        text_request(brief, "plain", MEDIUM, variant=1, max_tokens=4),
        *_of_many_segments(brief),
    ]
    arrivals = (together(first), together(*rows, when=gone("first")))
    return Schedule("segments_with_options", arrivals, options=IN_PIECES)


def _between(brief: Brief) -> Schedule:
    """New prompts around a continued one, by place and by length.

    The first row's cache may decide how all are merged, and rows may be sorted by length:
    https://github.com/ml-explore/mlx-lm/pull/842.
    """
    first = text_request(brief, "first", SHORT, max_tokens=3)
    rows = [
        text_request(brief, "new_short", TWO, variant=1, max_tokens=3),
        text_request(
            brief, "more", MEDIUM, variant=1, max_tokens=3, continues=Continuation("first")
        ),
        text_request(brief, "new_long", LONG, variant=1, max_tokens=3),
    ]
    return Schedule("between", (together(first), together(*rows, when=gone("first"))))


def _saved(brief: Brief) -> Schedule:
    """Caches loaded from a file, next to new prompts: of a prompt, and again of such a row.

    State that a cache's ``from_state`` loses shows when rows are merged, masked or extracted.
    """
    first = text_request(brief, "first", MEDIUM, max_tokens=3)
    loaded = Continuation("first", saved=True)
    rows = [
        text_request(brief, "new_short", TWO, variant=1, max_tokens=3),
        text_request(brief, "more", SHORT, variant=1, max_tokens=3, continues=loaded),
        text_request(brief, "new_long", LONG, variant=1, max_tokens=3),
        text_request(brief, "one_more", ONE, variant=1, max_tokens=4, continues=loaded),
    ]
    again = text_request(
        brief, "again", TWO, variant=2, max_tokens=3, continues=Continuation("more", saved=True)
    )
    arrivals = (together(*rows, when=gone("first")), together(again, when=gone("more")))
    return Schedule("saved", (together(first), *arrivals))


def _went_on(trace: Trace) -> bool:
    return any(
        request.continues is not None and trace.stream(request.request_id).finish_reason
        for request in trace.schedule.requests
    )


STAGGERED = Scenario(
    "staggered",
    70,
    "late joins while others decode",
    frozenset({Capability.LATE_JOIN}),
    _staggered,
    (
        seen.late_join().shown_in("short_into_long", "long_into_short"),
        seen.rows_together(3).shown_in("short_into_long"),
    ),
)
WINDOW = Scenario(
    "window",
    100,
    "prompts and outputs past the sliding window, or past a bounded cache",
    frozenset({Capability.LATE_JOIN}),
    _window,
    (
        Witness("a prompt of two windows", _PastWindow(by_output=False)),
        Witness("an output of one window", _PastWindow(by_output=True)),
        seen.late_join(),
    ),
    applies=_window_in_reach,
)
PROMPT_CACHE = Scenario(
    "prompt_cache",
    120,
    "going on from extracted caches, also by way of a file; prompts in segments",
    frozenset({Capability.PREFIX}),
    _prompt_cache,
    (
        Witness("a request that goes on from a cache", _went_on).shown_in(
            "finished", "between", "saved", "live", "segments_with_options"
        ),
        seen.prefill_together(2).shown_in("finished", "between", "saved", "segments"),
    ),
)
