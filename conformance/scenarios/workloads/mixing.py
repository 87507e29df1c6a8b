"""Mixes requests as a busy server gets them; everything is drawn from a seed.

All moments are moments of rows that surely decode so long, so that they mean the same on every
engine and always come.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from msgspec.structs import replace

from conformance.core.engine import Capability
from conformance.core.engine_options import EngineOptions
from conformance.core.schedule import Arrival, Removal, Request, Schedule
from conformance.scenarios.build import gone, produced, text_request, together
from conformance.scenarios.choices import Choices
from conformance.scenarios.scenario import Brief

Dress = Callable[[Request, bool], Request]
"""Gives a request a sampler, stop sequences, a medium; if the flag is set, nothing that ends it."""

# The fewest tokens of a prompt with two near twins.
_ENOUGH = 5
# Steps after its arrival at which a single row is removed at the latest.
_LATEST = 4
# Steps more than the largest limit for which a row decodes that is removed as the last.
_ALONE = 12
# Of the second half, the row whose limit is the engine's, and the one for whose end it waits.
OF_DEFAULT, _BEFORE = 1, 3
# Tokens at the end of a stop sequence that come, though what is before them never does.
_ALIKE = 8
# Rows are of kinds 0 to 6; those of the last have so many stop sequences that never match.
_KINDS, _MANY = 6, 70


@dataclass(frozen=True)
class Scale:
    """The size of a workload.

    Attributes:
        first: requests that arrive while the first row decodes, itself included.
        second: requests that arrive when all others have ended, in an idle engine.
        groups: the fewest and the most requests of one arrival.
        longest: tokens of the longest prompt.
        limits: the smallest and the largest limit of a request that does not end at once.
        lasting: the first row's limit; all of the first half arrives while it decodes.
        one_padded: the second half has prompts of one length, but for one that is shorter, and is
            left alone at last.
        emptied: the last row of the first half does not end; it is removed when all others have
            ended, so that the engine is idle because of a removal. Later one row comes alone, with
            the engine's limit.
    """

    first: int
    second: int
    groups: tuple[int, int]
    longest: int
    limits: tuple[int, int]
    lasting: int
    one_padded: bool = False
    emptied: bool = False


def traffic(
    brief: Brief,
    choices: Choices,
    scale: Scale,
    rows: Sequence[Request],
    *dresses: Dress,
    name: str,
    options: EngineOptions,
) -> Schedule:
    """A schedule of ``rows`` that come, wait, join, leave and end; the last when all is idle.

    Without the capability to join late all arrive at once and none is removed.
    """
    removed = _removed(choices, rows[: scale.first])
    if not {Capability.LATE_JOIN, Capability.CANCEL} <= brief.capabilities:
        removed = {}
    # A removed row, and those whose progress the others wait for, must not end before.
    lasting = {rows[0].request_id, rows[scale.first - 1].request_id, *removed}
    given = list(rows)
    for dress in dresses:
        given = [dress(row, row.request_id in lasting) for row in given]
    if Capability.LATE_JOIN not in brief.capabilities:
        return Schedule(name, (together(*given),), options=options)
    early, late = given[: scale.first], given[scale.first :]
    arrivals, removals = _timeline(choices, scale, early, removed)
    last, emptied = early[-1], scale.emptied and Capability.CANCEL in brief.capabilities
    if emptied:
        when = produced(last.request_id, last.max_tokens - 1)
        removals.append(Removal((last.request_id,), when))
    when = gone(last.request_id, removed=emptied)
    enough = len(late) > max(OF_DEFAULT, _BEFORE)
    if scale.emptied and enough and Capability.DEFAULTS in brief.capabilities:
        options = replace(options, max_tokens=late[OF_DEFAULT].max_tokens)
        arrivals += [
            together(*late[:OF_DEFAULT], *late[OF_DEFAULT + 1 :], when=when),
            together(late[OF_DEFAULT], when=gone(late[_BEFORE].request_id)),
        ]
    else:
        arrivals.append(together(*late, when=when))
    return Schedule(name, tuple(arrivals), tuple(removals), options=options)


def draw_rows(brief: Brief, choices: Choices, scale: Scale) -> list[Request]:
    """The first row, which lasts, and all others, with lengths, prompts and limits of their own.

    In each half one prompt has one token, and one row ends at its first. Two prompts differ in
    their last token only; of the second half, which waits together, two in their third only, and
    two have the same tokens in another order. Limits are used again when each was used once;
    lengths only where a model has few positions.
    """
    count = scale.first + scale.second
    room = scale.longest
    if brief.longest is not None:
        room = max(3, min(room, brief.longest - scale.lasting))
    lengths = cycled(choices, range(2, room + 1), count)
    low, high = scale.limits
    limits = cycled(choices, range(low, high), count)
    lengths[scale.first // 2] = lengths[scale.first + 1] = 1
    limits[scale.first // 3] = limits[-2] = 1
    if scale.one_padded:
        lengths[scale.first :] = [room // 2] * scale.second
        lengths[scale.first + 1], limits[scale.first + 1] = room // 3, high
    base, third, mirrored = scale.first, scale.first + 2, count - 1
    lengths[base] = max(lengths[base], min(room, _ENOUGH))
    limits[0], limits[scale.first - 1] = scale.lasting, high + _ALONE * scale.emptied
    rows = [
        text_request(brief, f"r{i}", length, variant=i, max_tokens=limits[i])
        for i, length in enumerate(lengths)
    ]
    one, other = max(range(scale.first - 1), key=lengths.__getitem__), scale.first - 1
    rows[other] = near_twin(brief, rows[one], rows[other], -1)
    rows[third] = near_twin(brief, rows[base], rows[third], 2)
    rows[mirrored] = near_twin(brief, rows[base], rows[mirrored], None)
    return rows


def near_twin(brief: Brief, one: Request, other: Request, place: int | None) -> Request:
    """``other`` with the prompt of ``one``, but for a token of its text, counted from either end.

    With ``None``, it has the same tokens, which begin at the end.
    """
    media = {at for medium in one.media for at in range(*medium.span)}
    text = [at for at in range(len(one.prompt)) if at not in media]
    prompt = list(one.prompt)
    if place is None:
        for at, mirrored in zip(text, reversed(text), strict=True):
            prompt[at] = one.prompt[mirrored]
    else:
        low, high = brief.tokens
        at = text[min(place, len(text) - 1)]
        prompt[at] = low + (prompt[at] - low + 1) % (high - low)
    return replace(other, prompt=tuple(prompt), media=one.media)


_TOGETHER = -1


def _removed(choices: Choices, rows: Sequence[Request]) -> dict[str, int]:
    """Rows that leave, and after how many of the first row's steps after their arrival.

    At once they wait in the queue, soon they are in prefill, later they decode; the longest three
    leave together when all have arrived.
    """
    able = sorted(rows[1:-1], key=lambda row: -row.max_tokens)
    together_, others = able[:3], [row for row in able[3:] if row.max_tokens > _LATEST + 1]
    chosen = [others[i] for i in cycled(choices, range(len(others)), min(5, len(others)))]
    alone = {row.request_id: (0, 1, 2, 3, _LATEST)[i] for i, row in enumerate(chosen)}
    return alone | {row.request_id: _TOGETHER for row in together_}


def _timeline(
    choices: Choices, scale: Scale, rows: Sequence[Request], removed: dict[str, int]
) -> tuple[list[Arrival], list[Removal]]:
    """Arrivals and removals, by the first row's progress."""
    first, latest = rows[0].request_id, scale.lasting - 2
    start = choices.integer(*scale.groups)
    arrivals = [together(*rows[:start])]
    arrived = dict.fromkeys((row.request_id for row in rows[:start]), 1)
    step, left = 1, list(rows[start:])
    while left:
        group = left[: choices.integer(*scale.groups)]
        left = left[len(group) :]
        arrivals.append(together(*group, when=produced(first, step)))
        arrived |= dict.fromkeys((row.request_id for row in group), step)
        step = min(step + choices.integer(1, 2), latest - _LATEST)
    leaving: dict[int, list[str]] = {}
    for name, after in removed.items():
        at = step + 1 if after == _TOGETHER else arrived[name] + after
        leaving.setdefault(at, []).append(name)
    moments = sorted(leaving.items())
    return arrivals, [Removal(tuple(names), produced(first, at)) for at, names in moments]


def cycled(choices: Choices, numbers: Sequence[int], count: int) -> list[int]:
    """``count`` of the numbers in random order; each once before any comes again."""
    drawn: list[int] = []
    while len(drawn) < count:
        left = list(numbers)
        drawn += [left.pop(choices.integer(0, len(left) - 1)) for _ in range(len(left))]
    return drawn[:count]


def stopping(
    brief: Brief, choices: Choices, options: EngineOptions, by_engine: Collection[str] = ()
) -> Dress:
    """Gives most rows one to six stop sequences: one that ends it, among others that never match.

    It has one to six tokens of the row's own output, and ends it at any of its tokens. Others begin
    or end like it; rows that last have one that ends like their first tokens. The first of these
    rows and some others have many, of which it is the last. Other rows have those of the engine, or
    none; so have the rows ``by_engine``, and a row that ends with its first token anyway.
    """
    low, high = brief.tokens
    many = False

    def dress(request: Request, lasts: bool) -> Request:  # noqa: FBT001 - see Dress
        nonlocal many
        kind = choices.integer(0, _KINDS)
        plain = kind < 3 or request.max_tokens == 1 or request.request_id in by_engine
        if plain and not (lasts and options.stop):
            return replace(request, stop=options.stop)
        end = choices.integer(1, request.max_tokens)
        # What comes after its end need not be known.
        needed = request if lasts else replace(request, max_tokens=end)
        tokens = brief.solo(needed, options).tokens
        end = min(end, len(tokens))
        never = next(t for t in range(low, high) if t not in tokens)
        begun = (*tokens[: max(1, end - 1)], never)
        if lasts:
            return replace(request, stop=(begun, (never,), (never, *tokens[:_ALIKE])))
        match = tokens[max(0, end - choices.integer(1, 6)) : end]
        begin, alike, longer = (tokens[0], never), (*match[:-1], never), (never, *match)
        stop = [(never,), begin, begun, alike, longer][: choices.integer(0, 5)]
        place = choices.integer(0, len(stop))
        if kind == _KINDS or not many:
            many = True
            stop += [(never,) * size for size in range(2, 2 + _MANY - len(stop))]
            place = len(stop)
        stop.insert(place, match)
        return replace(request, stop=tuple(stop))

    return dress


def ends_of(brief: Brief, rows: Sequence[Request], options: EngineOptions) -> EngineOptions:
    """``options`` with stop sequences that end both ``rows`` in their middle."""
    one, other = (brief.solo(row, options).tokens for row in rows)
    return replace(options, stop=(one[1:3], other[-2:-1]))
