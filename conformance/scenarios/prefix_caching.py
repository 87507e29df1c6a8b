"""Automatic prefix caching: reusing equal prefixes must not change the output.

A prompt of ``LONG`` tokens comes first, then prompts that share parts of it. The cache keeps whole
blocks (or snapshots of a whole prompt), so shared parts end at a block's edge, one token before it,
one after it and inside it. A prompt's own part never continues like a stored one, whatever is
drawn: otherwise caches that are cut at any token would reuse more of it.
"""

from __future__ import annotations

from msgspec.structs import replace

from conformance.core.engine import Capability
from conformance.core.engine_options import EngineOptions, PrefixCaching
from conformance.core.family import Family
from conformance.core.pooled import StoreCall
from conformance.core.schedule import Media, Removal, Request, Schedule, Stage
from conformance.core.token_choice import Processor
from conformance.scenarios import reuse_witnesses as reuse
from conformance.scenarios import witnesses as seen
from conformance.scenarios.build import (
    LONG,
    MEDIUM,
    OUTPUT,
    PIECE,
    SHORT,
    TWO,
    begun_otherwise,
    gone,
    in_prefill,
    one_by_one,
    produced,
    text_request,
    together,
    unlike,
)
from conformance.scenarios.scenario import Brief, Scenario

# Tokens of a block. By default, prompts of less than 16 tokens get no snapshot.
BLOCK = 4
SHARED = 4 * BLOCK
# Another prompt, long enough for a snapshot.
OTHER = SHARED + 2
# Output tokens of a prompt of which only the start matters, and of all others.
FEW, SOME = 2, 3


def _prefix_caching(brief: Brief) -> list[Schedule]:
    return [
        _in_turn(brief),
        _beside_cold(brief),
        _forks(brief),
        _late(brief),
        _evicted(brief),
        _cancelled(brief),
        *_penalised(brief),
        *schedules(brief),
        *(_media(brief, kind) for kind in brief.modalities if kind != "text"),
    ]


def _options(step: int = 2048, **cache: int) -> EngineOptions:
    caching = replace(PrefixCaching(block_size=BLOCK, interval=BLOCK), **cache)
    return EngineOptions(prefill_step_size=step, prefix_caching=caching)


def _first(brief: Brief, max_tokens: int) -> Request:
    """The long prompt; in two pieces if the engine keeps the cache at the end of each."""
    pieces = (SHARED + 1, LONG - SHARED - 1) if Capability.SEGMENTS in brief.capabilities else ()
    return text_request(brief, "first", LONG, max_tokens=max_tokens, segments=pieces)


def _after(
    brief: Brief, name: str, shared: int, more: int, max_tokens: int = FEW, *others: Request
) -> Request:
    """A prompt with the first ``shared`` tokens of the long one, and ``more`` of its own.

    Other prompts, which share at least as much, continue differently.
    """
    kept = _kept(brief, _first(brief, FEW))
    taken = {*kept[shared : shared + 1], *(other.prompt[shared] for other in others)}
    own = begun_otherwise(brief, brief.prompt(more, variant=7), taken)
    return Request(name, kept[:shared] + (own if more else ()), max_tokens)


def _kept(brief: Brief, request: Request) -> tuple[int, ...]:
    """The tokens of the request's prompt and the first of its output, which caches may keep."""
    return request.prompt + brief.solo(request, EngineOptions()).tokens[:1]


def _swapped(brief: Brief) -> Request:
    """The long prompt with its second and third block swapped."""
    prompt = brief.prompt(LONG)
    first, second, third = (prompt[n * BLOCK : (n + 1) * BLOCK] for n in range(3))
    third = begun_otherwise(brief, third, second[:1])
    return Request("swapped", first + third + second + prompt[3 * BLOCK :], FEW)


def _in_turn(brief: Brief) -> Schedule:
    """One after the other: different ends, a longer prompt, whole blocks only, swapped blocks."""
    requests = [
        _first(brief, FEW),
        _after(brief, "in_block", SHARED + 2, SHORT),
        _after(brief, "longer", LONG, SHORT),
        _after(brief, "edge", SHARED, 0),
        _swapped(brief),
    ]
    return one_by_one("in_turn", requests, _options())


def _beside_cold(brief: Brief) -> Schedule:
    """Rows with more, less and nothing to reuse in one prefill, in pieces."""
    first = _first(brief, FEW)
    rows = (
        text_request(brief, "again", LONG, max_tokens=SOME),
        unlike("cold", brief.prompt(MEDIUM), first, brief=brief, max_tokens=SOME),
        _after(brief, "in_block", SHARED + 2, SHORT, max_tokens=SOME),
        _after(brief, "longer", LONG, SHORT, max_tokens=SOME),
    )
    arrivals = (together(first), together(*rows, when=gone("first")))
    return Schedule("beside_cold", arrivals, options=_options(PIECE))


def _forks(brief: Brief) -> Schedule:
    """Several prompts continue one prompt at the same time, each by its own length.

    Then only the new part is padded, in place: mlx-vlm 0.7.3 kept a mask that was made before.
    """
    rows: list[Request] = []
    for name, more in {"by_five": SHORT, "by_eleven": MEDIUM, "by_two": TWO}.items():
        rows.append(_after(brief, name, LONG, more, SOME, *rows))
    arrivals = (together(_first(brief, FEW)), together(*rows, when=gone("first")))
    return Schedule("forks", arrivals, options=_options(PIECE))


def _late(brief: Brief) -> Schedule:
    """A prompt joins decoding rows, including the one whose prefix it reuses.

    Then one reuses the other of the two that were prefilled together. Their snapshots are taken one
    token apart, when a window's storage has wrapped around.
    """
    first = _first(brief, OUTPUT)
    other = unlike("other", brief.prompt(OTHER), first, brief=brief)
    own = begun_otherwise(brief, brief.prompt(TWO, variant=7), _kept(brief, other)[OTHER:])
    again = Request("other_again", other.prompt + own, FEW)
    return Schedule(
        "late",
        (
            together(first, other),
            together(
                _after(brief, "late", SHARED + 2, SHORT, max_tokens=SOME), when=produced("first", 1)
            ),
            together(again, when=gone("late")),
        ),
        options=_options(),
    )


def _evicted(brief: Brief) -> Schedule:
    """There is space for one prompt: the next one evicts it, even while it decodes."""
    first = text_request(brief, "first", LONG, max_tokens=FEW)
    again = text_request(brief, "again", LONG, max_tokens=4)
    other = unlike("other", brief.prompt(LONG, variant=1), first, brief=brief)
    last = unlike("next", brief.prompt(LONG, variant=2), first, other, brief=brief, max_tokens=1)
    return Schedule(
        "evicted",
        (
            together(first),
            together(other, when=gone("first")),
            together(again, when=gone("other")),
            together(last, when=produced("again", 1)),
        ),
        options=_options(blocks=LONG // BLOCK, snapshots=1),
    )


def _cancelled(brief: Brief) -> Schedule:
    """Of rows that reuse a prefix one is removed in prefill, one in decode; then it is reused."""
    return Schedule(
        "cancelled",
        (
            together(_first(brief, FEW)),
            together(
                _after(brief, "a", SHARED + 2, SHORT),
                _after(brief, "b", LONG, SHORT, max_tokens=SOME),
                when=gone("first"),
            ),
            together(
                text_request(brief, "again", LONG, max_tokens=FEW), when=gone("b", removed=True)
            ),
        ),
        (Removal(("a",), in_prefill("b", PIECE)), Removal(("b",), produced("b", 2))),
        options=_options(PIECE),
    )


def _penalised(brief: Brief) -> list[Schedule]:
    """A row with a penalty, which counts the tokens of the prefix that it reuses."""
    if Capability.PROCESSORS not in brief.capabilities:
        return []
    arguments = {"repetition_penalty": 1.4, "repetition_context_size": 2 * LONG}
    # All of the first prompt is shared: some caches can't be cut.
    after = _after(brief, "after", LONG, SHORT, max_tokens=SOME)
    penalised = replace(after, processors=(Processor("library", arguments),))
    first = _first(brief, FEW)
    beside = text_request(brief, "beside", LONG, variant=1, max_tokens=FEW, segments=first.segments)
    arrivals = (together(first, beside), together(penalised, when=gone("first")))
    return [Schedule("penalised", arrivals, options=_options())]


def _media(brief: Brief, kind: str) -> Schedule:
    """The same text around equal and different media of one size; then other text after it."""
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
    return one_by_one(f"{kind}_in_turn", requests, _options())


def _of_text(family: Family) -> str:
    kind = family.facts.required
    return f"no two requests share a prefix: each has its own {kind}" if kind else ""


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
        reuse.hit().shown_in(
            "in_turn", "beside_cold", "forks", "first_pieces", "late", "cancelled"
        ),
        reuse.hit_of_part().shown_in("in_turn", "beside_cold", "late", "cancelled"),
        reuse.beside_cold().shown_in("beside_cold"),
        reuse.late_hit().shown_in("late"),
        reuse.evicted().shown_in("evicted"),
        reuse.hit_with_processors().shown_in("penalised"),
        reuse.given_up(StoreCall.INSERT).shown_in("by_number"),
        reuse.given_up(StoreCall.BOUND).shown_in("by_bytes"),
        reuse.kinds_kept(2).shown_in("by_number", "by_bytes"),
        reuse.removed(Stage.PREFILL).shown_in("cancelled"),
        reuse.removed(Stage.DECODE).shown_in("cancelled"),
        seen.follow_up().shown_in("cancelled"),
    ),
    applies=_of_text,
)


# Tokens of a system prompt, and of an output.
_SYSTEM, _FEW = 16, 2


# Of a server's sequence store: only for engines that keep the cache at the end of each piece.
def schedules(brief: Brief) -> list[Schedule]:
    """All schedules that the engine can run; more if it reports the store's content."""
    if Capability.SEGMENTS not in brief.capabilities:
        return []
    found = [_no_room(brief), _first_pieces(brief)]
    if Capability.STORED in brief.capabilities:
        found += [*_bounded(brief), _of_few(brief)]
    return found


def _bounded(brief: Brief) -> list[Schedule]:
    """Conversations of three pieces, stored with different kinds; only some of them fit.

    The last of them are repeated. The limit is a number or bytes.
    """
    system = brief.prompt(_SYSTEM)
    turns = [brief.prompt(SHORT, variant=8 + number) for number in range(4)]
    asked = [(system, turns[0]), (system, turns[1]), (turns[2], turns[0]), (system, turns[0])]
    requests = [
        Request(f"r{place}", sum(pieces, ()), _FEW, segments=tuple(map(len, pieces)))
        for place, pieces in enumerate((*first, turns[3]) for first in asked)
    ]
    # A prompt that differs from others after their first piece, and one that continues another.
    requests.append(Request("shorter", (*system, turns[2][0]), _FEW))
    requests.append(Request("longer", (*requests[1].prompt, *turns[2]), _FEW))
    bounds = {"by_number": PrefixCaching(snapshots=3), "by_bytes": PrefixCaching(times_first=2.5)}
    made = {name: EngineOptions(prefix_caching=bound) for name, bound in bounds.items()}
    return [one_by_one(name, requests, made[name]) for name in made]


def _no_room(brief: Brief) -> Schedule:
    """Two requests store the same sequence. The next one may reuse it, and evicts it."""
    names = ("twin", "other_twin", "again", "last")
    twin, other, again, last = (
        text_request(brief, name, MEDIUM, max_tokens=_FEW) for name in names
    )
    arrivals = (
        together(twin, other),
        together(again, when=gone("twin")),
        together(last, when=gone("again")),
    )
    options = EngineOptions(prefix_caching=PrefixCaching(max_bytes=0))
    return Schedule("no_room", arrivals, options=options)


def _first_pieces(brief: Brief) -> Schedule:
    """Caches kept at the end of the first pieces of two prompts that are prefilled together.

    Two prompts begin with one of them each; if caches can't be cut, nothing else can be reused.
    """
    one = text_request(brief, "one", LONG, max_tokens=_FEW, segments=(_SYSTEM, LONG - _SYSTEM))
    prompt = unlike("other", brief.prompt(LONG, variant=1), one, brief=brief).prompt
    other = Request("other", prompt, _FEW, segments=(_SYSTEM - 2, LONG - _SYSTEM + 2))
    again = []
    for request in (one, other):
        kept, after = request.prompt[: request.segments[0]], request.prompt[request.segments[0]]
        own = begun_otherwise(brief, brief.prompt(SHORT, variant=7), (after,))
        again.append(Request(f"like_{request.request_id}", kept + own, 3))
    arrivals = (together(one, other), together(*again, when=gone("other")))
    options = EngineOptions(prefix_caching=PrefixCaching())
    return Schedule("first_pieces", arrivals, options=options)


def _of_few(brief: Brief) -> Schedule:
    """Sequences of a few tokens, kept in pieces, and prompts that share one or two tokens."""
    first = brief.prompt(SHORT)
    pieces = (2, SHORT - 2)
    other = begun_otherwise(brief, brief.prompt(TWO, variant=3), first[1:2])
    third = begun_otherwise(brief, brief.prompt(TWO, variant=4), first[2:3])
    requests = [
        Request("few", first, _FEW, segments=pieces),
        Request("of_one", first[:1] + other, _FEW),
        Request("of_two", first[:2] + third, _FEW),
    ]
    return one_by_one("of_few", requests, EngineOptions(prefix_caching=PrefixCaching()))
