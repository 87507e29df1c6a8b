"""Clients that leave a server: in the queue, in prefill, in a stream, at the last token."""

from __future__ import annotations

from msgspec.structs import replace

from conformance.core.engine import Capability
from conformance.core.engine_options import EngineOptions, PrefixCaching
from conformance.core.schedule import (
    CYCLES,
    Asked,
    Client,
    Removal,
    Request,
    Schedule,
    Trigger,
    Weigh,
)
from conformance.core.trace import Trace
from conformance.scenarios.build import (
    LONG,
    MEDIUM,
    PIECE,
    SHORT,
    TWO,
    gone,
    in_prefill,
    produced,
    queued,
    requests_of,
    seeded,
    text_request,
    together,
)
from conformance.scenarios.scenario import Brief
from conformance.scenarios.served_clients import ANSWER, BUSY, LASTING

# Tokens of prompts that are prefilled in as many pieces: a server may look half a second later
# for clients that have left, and is to find them still in prefill.
LONG_PROMPT = 400
# Clients that leave when they have all tokens of their answers but the last.
_AT_THE_END = 6


# Those whose servers have a slot for each of the clients that leave together.
_LIBRARIES = ("mlx_lm", "mlx_vlm")
_LEAVERS = 6
# Tokens of an answer that a client has when it leaves.
_SAID = 8
# The library whose server many cycles are sent to.
_FAST = "mlx_lm"


def leaves(brief: Brief) -> list[Schedule]:
    """Clients disconnect: during an answer, before it has begun, from the last slot."""
    # The engine's own request has the other slot: its tokens measure how long the next one waits.
    slot = EngineOptions(busy=True, prefill_batch_size=1, completion_batch_size=2)
    long = text_request(brief, "long", SHORT, max_tokens=2 * LASTING)
    rows = requests_of(brief, (LONG, MEDIUM, TWO), ANSWER)
    after = text_request(brief, "next", MEDIUM, variant=1, max_tokens=ANSWER)
    known = {brief.library, *brief.capabilities}
    return [
        Schedule(
            "last_slot",
            (together(long), together(after, when=gone("long", removed=True))),
            (Removal(("long",), produced("long", 8)),),
            options=slot,
        ),
        *([_several(brief)] if brief.library in _LIBRARIES else []),
        Schedule(
            "stream",
            (together(*rows), together(after, when=gone(f"r{LONG}", removed=True))),
            (Removal((f"r{LONG}",), produced(f"r{LONG}", 3)),),
            options=BUSY,
        ),
        Schedule(
            "waiting",
            (together(*rows), together(after, when=gone(f"r{MEDIUM}", removed=True))),
            (Removal((f"r{MEDIUM}",), queued(f"r{MEDIUM}")),),
            options=BUSY,
        ),
        _at_last_token(brief),
        _unread(brief),
        # A client that does not read all that has come resets its connection when it closes it.
        Schedule(
            "reset",
            (
                together(replace(long, asked=Asked(client=Client.RAW))),
                together(after, when=gone("long", removed=True)),
            ),
            (Removal(("long",), produced("long", 8)),),
            options=slot,
        ),
        *(_with_seeds(brief, long) if brief.library == _FAST else []),
        *([_in_prefill(brief)] if Capability.CHUNKED in brief.capabilities else []),
        # That of mlx-vlm needs minutes, and goes on at wrong positions where the client of a longer
        # prompt leaves in prefill (rope-of-one-padded-row).
        *([_again(brief)] if {_FAST, Capability.COUNTED} <= known else []),
    ]


def _several(brief: Brief) -> Schedule:
    """Many clients leave at one moment, and as many come after them, which need their slots.

    Those that leave have one prompt: the single stream of such an answer takes seconds.
    """
    rows = [
        text_request(brief, f"long{at}", SHORT, max_tokens=2 * LASTING) for at in range(_LEAVERS)
    ]
    names = tuple(row.request_id for row in rows)
    after = [
        text_request(brief, f"next{at}", MEDIUM, variant=at % 2, max_tokens=LASTING // 2)
        for at in range(_LEAVERS)
    ]
    return Schedule(
        "several",
        (together(*rows), together(*after, when=gone(names[0], removed=True))),
        (Removal(names, produced(names[-1], 8)),),
        options=EngineOptions(busy=True, completion_batch_size=_LEAVERS + 1),
    )


def _with_seeds(brief: Brief, long: Request) -> list[Schedule]:
    """A request that waits until all rows have ended, one of whose clients left.

    And a client that leaves while its request is served alone, whose prompt and begun answer
    another one then continues; one that leaves a batch, whose prompt another one has, too.
    """
    rows = requests_of(brief, (LONG, MEDIUM), LASTING)
    rows[1] = replace(rows[1], max_tokens=ANSWER)
    after = text_request(brief, "next", MEDIUM, variant=1, max_tokens=ANSWER)
    left = f"r{LONG}"
    low, high = brief.tokens
    said = brief.solo(long, EngineOptions()).tokens[:_SAID]
    answer = tuple(token if low <= token < high else low + token % 7 for token in said)
    goes_on = Request("next", long.prompt + answer + brief.prompt(SHORT, 4), ANSWER)
    other = text_request(brief, "other", MEDIUM, variant=3, max_tokens=2 * LASTING)
    same = Request("same", other.prompt + brief.prompt(SHORT, 5), ANSWER)
    return [
        Schedule(
            "drained",
            (together(*rows), together(seeded(after), when=gone(left, removed=True))),
            (Removal((left,), produced(left, 3)),),
        ),
        Schedule(
            "continued",
            (
                together(seeded(long)),
                together(goes_on, when=gone("long", removed=True)),
                together(other, when=gone("next")),
                together(same, when=gone("other", removed=True)),
            ),
            (
                Removal(("long",), produced("long", _SAID)),
                Removal(("other",), produced("other", _SAID)),
            ),
            options=EngineOptions(prefix_caching=PrefixCaching()),
        ),
    ]


def _again(brief: Brief) -> Schedule:
    """Some requests end and some clients leave, many times; the server is idle in between."""
    arrivals, removals = [], []
    for number in range(CYCLES):
        lengths = {"ends": MEDIUM, "streams": SHORT, "waits": TWO, "begins": 4 * LONG}
        limits = [ANSWER // 2, LASTING, ANSWER, ANSWER]
        rows = requests_of(brief, {f"{name}{number}": n for name, n in lengths.items()}, limits)
        _, streams, waits, begins = (row.request_id for row in rows)
        when = gone(f"ends{number - 1}") if number else None
        arrivals.append(together(*rows, when=when))
        removals += [Removal((name,), queued(name)) for name in (waits, begins)]
        removals.append(Removal((streams,), produced(streams, 2)))
    options = EngineOptions(prefill_step_size=PIECE, counted=True)
    return Schedule("again", tuple(arrivals), tuple(removals), options=options, weigh=Weigh.IDLE)


def weighed(trace: Trace) -> bool:
    """Whether it was counted often enough what requests left behind.

    On loaded cores a cycle may begin before the clients of the one before have left.
    """
    return len(trace.left) >= CYCLES // 2


def _in_prefill(brief: Brief) -> Schedule:
    """Clients leave after their prompts' first piece, and between two; one of them stays."""
    lengths = {"first_piece": 0, "stays": 3, "halfway": 1, "whole": 2}
    rows = [
        text_request(
            brief,
            name,
            LONG_PROMPT + more,
            max_tokens=ANSWER + more,
            asked=Asked(streamed=name != "whole"),
        )
        for name, more in lengths.items()
    ]
    beside = text_request(brief, "beside", SHORT, max_tokens=2 * ANSWER)
    half = LONG_PROMPT // 2
    removals = (
        Removal(("first_piece",), in_prefill("first_piece", 1)),
        Removal(("halfway", "whole"), in_prefill("halfway", half)),
    )
    after = [text_request(brief, f"next{i}", n, variant=1) for i, n in enumerate((MEDIUM, TWO))]
    arrivals = (together(beside, *rows), together(*after, when=gone("halfway", removed=True)))
    options = EngineOptions(prefill_step_size=1)
    return Schedule("prefill", arrivals, removals, options=options)


def _at_last_token(brief: Brief) -> Schedule:
    """Clients leave when all but the last token of their answers have come."""
    lengths = {f"r{i}": (MEDIUM, SHORT, TWO)[i % 3] for i in range(_AT_THE_END)}
    rows = requests_of(brief, lengths, [4 + i for i in range(_AT_THE_END)])
    beside = text_request(brief, "beside", LONG, max_tokens=2 * ANSWER)
    removals = [Removal((r.request_id,), _before_last(r)) for r in rows]
    after = text_request(brief, "next", MEDIUM, variant=2, max_tokens=ANSWER)
    return Schedule(
        "last_token",
        (together(beside, *rows), together(after, when=gone("beside"))),
        tuple(removals),
        options=BUSY,
    )


def _before_last(request: Request) -> Trigger:
    """When its client has all tokens but one, of which the last may still turn out incomplete."""
    return produced(request.request_id, request.max_tokens - 2)


# An answer that nobody reads: its tokens, and the text of each. Systems buffer some megabytes for a
# client, Linux up to 4; only then does a server wait for the client.
_UNREAD, _WIDE = 120, 48000


def _unread(brief: Brief) -> Schedule:
    """A client does not read its answer, which ends; it disconnects while others decode."""
    unread = text_request(brief, "unread", SHORT, max_tokens=_UNREAD, asked=Asked(unread=True))
    beside = text_request(brief, "beside", SHORT, variant=1, max_tokens=2 * _UNREAD)
    after = [text_request(brief, f"next{i}", MEDIUM, variant=i, max_tokens=_UNREAD) for i in (0, 1)]
    tokens = dict.fromkeys(brief.solo(unread, EngineOptions()).tokens)
    # Texts as long as some sentences: prompts have others, and so has most of what is read. Each
    # ends a line: servers decode the tokens of a line again for each that joins it.
    taken = {t for request in (unread, beside, *after) for t in request.prompt}
    words = tuple((f"<{token}{'.' * _WIDE}>\n", token) for token in tokens if token not in taken)
    return Schedule(
        "unread",
        (together(unread, beside), together(*after, when=gone("beside"))),
        (Removal(("unread",), produced("next0", 3)),),
        options=EngineOptions(words=words),
    )
