"""Automatic prefix caching: what equal prefixes save changes nothing in what comes out.

A prompt of ``LONG`` tokens is seen first; then come prompts that share more or less of it. The
cache keeps whole blocks (or snapshots of a whole prompt), so shared parts end at a block's edge,
one token before it, one after it and inside of it.
"""

from __future__ import annotations

import itertools

from conformance.core.engine import Capability
from conformance.core.family import Family
from conformance.core.options import EngineOptions, PrefixCaching
from conformance.core.schedule import Media, Removal, Request, Schedule, Stage
from conformance.scenarios import reuse_witnesses as reuse
from conformance.scenarios import witnesses as seen
from conformance.scenarios.base import Brief, Scenario
from conformance.scenarios.build import (
    LONG,
    MEDIUM,
    OUTPUT,
    PIECE,
    SHORT,
    TWO,
    ask,
    gone,
    in_prefill,
    produced,
    together,
)

# Tokens of a block. Snapshots are taken of no prompt of less than 16 tokens, by default.
BLOCK = 4
SHARED = 4 * BLOCK
# A prompt beside the long one, of other tokens: long enough for a snapshot.
OTHER = SHARED + 2
# Output tokens: of a prompt of which only the beginning is of interest, and of all others.
FEW, SOME = 2, 3


def _prefix_caching(brief: Brief) -> list[Schedule]:
    return [
        _in_turn(brief),
        _beside_cold(brief),
        _late(brief),
        _evicted(brief),
        _cancelled(brief),
        *_no_room(brief),
        *(_media(brief, kind) for kind in brief.modalities if kind != "text"),
    ]


def _options(step: int = 2048, **cache: int) -> EngineOptions:
    caching = PrefixCaching(block_size=BLOCK, interval=BLOCK, **cache)
    return EngineOptions(prefill_step_size=step, prefix_caching=caching)


def _first(brief: Brief, max_tokens: int) -> Request:
    """The long prompt; in two pieces, where the engine keeps what it has at the end of each."""
    pieces = (SHARED + 1, LONG - SHARED - 1) if Capability.SEGMENTS in brief.capabilities else ()
    return ask(brief, "first", LONG, max_tokens=max_tokens, segments=pieces)


def _after(brief: Brief, name: str, shared: int, more: int, max_tokens: int = FEW) -> Request:
    """A prompt with the first ``shared`` tokens of the long one, and ``more`` of its own."""
    own = brief.prompt(more, variant=7) if more else ()
    return Request(name, brief.prompt(LONG)[:shared] + own, max_tokens)


def _swapped(brief: Brief) -> Request:
    """The long prompt with its second and third block in each other's place."""
    prompt = brief.prompt(LONG)
    blocks = (prompt[:BLOCK], prompt[2 * BLOCK : 3 * BLOCK], prompt[BLOCK : 2 * BLOCK])
    return Request("swapped", (*sum(blocks, ()), *prompt[3 * BLOCK :]), FEW)


def _one_by_one(name: str, requests: list[Request]) -> Schedule:
    later = [
        together(request, when=gone(before.request_id))
        for before, request in itertools.pairwise(requests)
    ]
    return Schedule(name, (together(requests[0]), *later), options=_options())


def _in_turn(brief: Brief) -> Schedule:
    """One after the other: other ends, a longer prompt, whole blocks alone, blocks swapped."""
    requests = [
        _first(brief, FEW),
        _after(brief, "in_block", SHARED + 2, SHORT),
        _after(brief, "longer", LONG, SHORT),
        _after(brief, "edge", SHARED, 0),
        _swapped(brief),
    ]
    return _one_by_one("in_turn", requests)


def _beside_cold(brief: Brief) -> Schedule:
    """Rows with more, less and nothing to reuse in one prefill, in pieces."""
    rows = (
        ask(brief, "again", LONG, max_tokens=SOME),
        ask(brief, "cold", MEDIUM, max_tokens=SOME),
        _after(brief, "in_block", SHARED + 2, SHORT, max_tokens=SOME),
        _after(brief, "longer", LONG, SHORT, max_tokens=SOME),
    )
    first = together(_first(brief, FEW))
    arrivals = (first, together(*rows, when=gone("first")))
    return Schedule("beside_cold", arrivals, options=_options(PIECE))


def _late(brief: Brief) -> Schedule:
    """A prompt that reuses joins others that decode, the one that it reuses among them.

    Then one reuses the other of the two that were prefilled together. Their snapshots fall due one
    token apart: a window's storage has begun anew when they are taken.
    """
    other = Request("other_again", brief.prompt(OTHER) + brief.prompt(TWO, variant=7), FEW)
    return Schedule(
        "late",
        (
            together(_first(brief, OUTPUT), ask(brief, "other", OTHER, max_tokens=FEW)),
            together(
                _after(brief, "late", SHARED + 2, SHORT, max_tokens=SOME), when=produced("first", 1)
            ),
            together(other, when=gone("late")),
        ),
        options=_options(),
    )


def _evicted(brief: Brief) -> Schedule:
    """There is room for one prompt: the next takes its place, even while it decodes."""
    return Schedule(
        "evicted",
        (
            together(ask(brief, "first", LONG, max_tokens=FEW)),
            together(ask(brief, "other", LONG, variant=1, max_tokens=FEW), when=gone("first")),
            together(ask(brief, "again", LONG, max_tokens=4), when=gone("other")),
            together(ask(brief, "next", LONG, variant=2, max_tokens=1), when=produced("again", 1)),
        ),
        options=_options(blocks=LONG // BLOCK, snapshots=1),
    )


def _cancelled(brief: Brief) -> Schedule:
    """Of rows that reuse one goes in prefill and one in decode; then the prefix is used again."""
    return Schedule(
        "cancelled",
        (
            together(_first(brief, FEW)),
            together(
                _after(brief, "a", SHARED + 2, SHORT),
                _after(brief, "b", LONG, SHORT, max_tokens=SOME),
                when=gone("first"),
            ),
            together(ask(brief, "again", LONG, max_tokens=FEW), when=gone("b", removed=True)),
        ),
        (Removal(("a",), in_prefill("b", PIECE)), Removal(("b",), produced("b", 2))),
        options=_options(PIECE),
    )


def _no_room(brief: Brief) -> list[Schedule]:
    """Two keep the same sequence. What comes next may use it, and leaves no room for it.

    Only for engines that keep whole sequences, which have their ends where prompts are cut.
    """
    if Capability.SEGMENTS not in brief.capabilities:
        return []
    names = ("twin", "other_twin", "again", "last")
    twin, other, again, last = (ask(brief, name, MEDIUM, max_tokens=FEW) for name in names)
    arrivals = (
        together(twin, other),
        together(again, when=gone("twin")),
        together(last, when=gone("again")),
    )
    options = EngineOptions(prefix_caching=PrefixCaching(max_bytes=0))
    return [Schedule("no_room", arrivals, options=options)]


def _media(brief: Brief, kind: str) -> Schedule:
    """The same text around the same and another medium of equal size; then other text after it."""
    size = brief.sizes[kind][0]

    def shows(name: str, content: int, variant: int = 0) -> Request:
        parts = (
            brief.prompt(2 * BLOCK + 1),
            Media(kind, size, content),
            brief.prompt(MEDIUM, variant),
        )
        prompt, media = brief.compose(parts)
        return Request(name, prompt, FEW, media=media)

    requests = [
        shows("first", 0),
        shows("other", 1),
        shows("again", 0, variant=1),
    ]
    return _one_by_one(f"{kind}_in_turn", requests)


def _speaks_of_text(family: Family) -> str:
    kind = family.facts.required
    return f"no two requests share a prefix: each speaks of its own {kind}" if kind else ""


PREFIX_CACHING = Scenario(
    "prefix_caching",
    155,
    "prompts that share a prefix, computed once",
    frozenset(
        {
            Capability.PREFIX_CACHING,
            Capability.CHUNKED,
            Capability.LATE_JOIN,
            Capability.CANCEL,
            Capability.STAGES,
        }
    ),
    _prefix_caching,
    (
        reuse.hit(),
        reuse.hit_of_part(),
        reuse.beside_cold(),
        reuse.late_hit(),
        reuse.evicted(),
        reuse.removed(Stage.PREFILL),
        reuse.removed(Stage.DECODE),
        seen.follow_up(),
    ),
    applies=_speaks_of_text,
)
