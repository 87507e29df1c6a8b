"""Clients of a server that disconnect, arrive by hundreds, or send invalid requests."""

from __future__ import annotations

import numpy as np
from msgspec.structs import replace

from conformance.core.engine import Capability
from conformance.core.engine_options import EngineOptions, PrefixCaching
from conformance.core.schedule import (
    Arrival,
    Asked,
    Probe,
    Removal,
    Request,
    Schedule,
    Stage,
)
from conformance.core.token_choice import Processor
from conformance.core.trace import Trace
from conformance.scenarios.build import (
    LONG,
    MEDIUM,
    SHORT,
    TENANTS,
    TWO,
    gone,
    one_by_one,
    produced,
    queued,
    requests_of,
    seeded,
    text_request,
    together,
)
from conformance.scenarios.scenario import Brief

# Output tokens of a request, and of one that others join: servers look for requests only at times.
ANSWER, LASTING = 24, 1200
FLOOD, FLOOD_SLOTS = 320, 32
_LIMIT = 5
LIBRARIES = ("mlx_lm", "mlx_vlm")
# The library whose server answers requests with seeds one by one, and whose penalties are right.
_WITH_SEEDS = "mlx_lm"
_WITH_XTC = "mlx_lm"  # the only library whose server has XTC
_COUNTS_ALL = Processor("library", {"repetition_penalty": 1.4, "repetition_context_size": 4 * LONG})
# Tokens of a user's message, of the answer, of the user's next one and of the answer to that.
_TURNS = (4, 5, 6, 3)
_BEFORE, _AGAIN = "before", "again"
_NAMED = "http"  # the library of a server that is known by its address alone
BUSY = EngineOptions(busy=True)
# A request joins if at least this many tokens of a running answer are still to come: servers look
# for new requests only at times, and no machine generates so many meanwhile.
RUNNING = 3000
JOINED = "tokens of an answer that a joining request waited for"
"""The engine's claim about each request that joined such an answer."""


def alone(brief: Brief) -> list[Schedule]:
    """Requests in turn, answered in pieces and as a whole; fields that few clients send."""
    ways = {"chat": Asked(), "whole": Asked(streamed=False)}
    if Capability.COMPLETIONS in brief.capabilities:
        ways |= {"text": Asked(chat=False), "whole_text": Asked(streamed=False, chat=False)}
    requests = [
        text_request(brief, name, MEDIUM, variant=at, max_tokens=ANSWER, asked=asked)
        for at, (name, asked) in enumerate(ways.items())
    ]
    # What comes of a template is unknown of a server at a URL: there it would be its own answer.
    turns = _TURNS if brief.library in LIBRARIES else ()
    one = [
        text_request(brief, "one", TWO, max_tokens=1),
        text_request(brief, "long", LONG, asked=Asked(turns=turns)),
    ]
    rare = {"top_logprobs": Asked(streamed=False, fields={"top_logprobs": 3})}
    rare["stream_options"] = Asked(fields={"stream_options": {}})
    # A number of JSON needs no point. None of these changes a greedy answer.
    xtc = {"xtc_probability": 1, "xtc_threshold": 0} if brief.library == _WITH_XTC else {}
    rare["whole_numbers"] = Asked(fields={"top_p": 1, "presence_penalty": 0, **xtc})
    if Capability.COMPLETIONS in brief.capabilities:
        rare["logprobs"] = Asked(streamed=False, chat=False, fields={"logprobs": 1})
    fields = [
        text_request(brief, name, SHORT, variant=at, max_tokens=8, asked=asked)
        for at, (name, asked) in enumerate(rare.items())
    ]
    options = EngineOptions()
    schedules = [
        one_by_one("alone", [*requests, *one], options),
        one_by_one("fields", fields, options),
    ]
    if brief.library in LIBRARIES:
        limits = [
            text_request(
                brief,
                f"limit {n}",
                SHORT,
                max_tokens=n,
                asked=Asked(streamed=n == _LIMIT, fields={"max_completion_tokens": n}),
            )
            for n in (_LIMIT, _LIMIT + 1)
        ]
        # Whoever does not read them goes on to the server's own limit.
        schedules.append(one_by_one("limits", limits, EngineOptions(max_tokens=ANSWER)))
        # Others are asked for their models at the start.
        listed = text_request(brief, "listed", TWO, max_tokens=2)
        schedules.append(one_by_one("listed", [listed], EngineOptions(listed=True)))
    return schedules


def prefixes(brief: Brief) -> list[Schedule]:
    """Many prompts begin alike; then they begin differently; then as before."""
    rows = []
    # Counts the tokens of a prompt that were kept, too. The single stream of no other library does.
    counting = brief.library == _WITH_SEEDS and Capability.PROCESSORS in brief.capabilities
    penalties = (_COUNTS_ALL,) if counting else ()
    for block, variant in enumerate((0, 1, 0)):
        begin = brief.prompt(LONG, variant)
        rows += [
            Request(
                f"r{block}{i}",
                begin + brief.prompt(SHORT, 3 + i + block),
                ANSWER // 2,
                processors=penalties if i else (),
                asked=Asked(streamed=i < 2),
            )
            for i in range(3)
        ]
    caching = PrefixCaching()
    options = EngineOptions(prefix_caching=caching)
    first, *others = rows
    turns = _turns(brief)
    return [
        one_by_one("one_by_one", [*rows, *_twins(brief, first, rows[3])], options),
        Schedule(
            "together",
            (together(first), together(*others, when=gone(first.request_id))),
            options=options,
        ),
        one_by_one("turns", turns, options),
        *(
            [one_by_one("turns_with_seeds", [seeded(row) for row in turns], options)]
            if brief.library == _WITH_SEEDS
            else []
        ),
        *(
            [one_by_one("tenants", _of_tenants(brief), options)]
            if Capability.TENANTS in brief.capabilities
            else []
        ),
    ]


def _twins(brief: Brief, first: Request, other_begin: Request) -> list[Request]:
    """Prompts of the first one's tokens in another order, and with another one near the begin.

    And with the begin of one that is kept, too: what follows it was computed after the first's.
    """
    (begin, second, *rest), (low, high) = first.prompt, brief.tokens
    other = low + (second - low + 1) % (high - low)
    size = PrefixCaching().block_size
    twins = {
        "order": (begin, *reversed((second, *rest))),
        "second": (begin, other, *rest),
        "mixed": (*other_begin.prompt[:size], *first.prompt[size:]),
    }
    return [replace(first, request_id=name, prompt=prompt) for name, prompt in twins.items()]


def _of_tenants(brief: Brief) -> list[Request]:
    """The same prompt for tenants of long names that are much alike, and for the first again."""
    prompt, (first, *others) = brief.prompt(LONG, 9), TENANTS
    return [
        Request(f"r{at}", prompt, ANSWER // 3, tenant=tenant, asked=Asked(streamed=at % 2 == 0))
        for at, tenant in enumerate((first, *others, first))
    ]


# Tokens of a prompt that fills more than one block of a cache's storage, which has 256, and of the
# part of it that another prompt begins with: what is kept must be cut by less than a block.
_BEGIN, _PART = 300, 280


def _turns(brief: Brief) -> list[Request]:
    """A long conversation that goes on, and goes on otherwise from the same answer.

    It is cut back to a part of its begin, and goes on again.
    """
    less = max(0, _BEGIN + 6 * ANSWER - (brief.longest or 4 * _BEGIN))
    begin = brief.prompt(_BEGIN - less, 0)
    low, high = brief.tokens

    def row(name: str, prompt: tuple[int, ...], variant: int) -> Request:
        return Request(name, prompt + brief.prompt(SHORT, variant), ANSWER // 2)

    def turn(name: str, before: Request, variant: int) -> Request:
        # What is special, such as an end token, is no text that a client could send back.
        said = brief.solo(before, EngineOptions()).tokens
        answer = tuple(token if low <= token < high else low + token % 7 for token in said)
        return row(name, before.prompt + answer, variant)

    first = row("first", begin, 3)
    back = row("back", begin[: _PART - less], 5)
    again = row("again", begin, 6)
    ways = [turn("second", first, 4), turn("otherwise", first, 8)]
    return [first, *ways, back, turn("back_second", back, 7), again]


def joined(trace: Trace) -> bool:
    """Whether a request arrived during a long answer."""
    return any(claim.what == JOINED for step in trace.steps for claim in step.output.claims)


def reused(trace: Trace) -> bool:
    """Whether the start of some prompt was not computed again."""
    return any(step.output.reused for step in trace.steps)


def flood(brief: Brief) -> list[Schedule]:
    """Ten times as many requests as rows; the clients of some disconnect."""
    rng = np.random.default_rng((brief.seed, FLOOD))
    rows, removals = [], []
    for index in range(FLOOD):
        length = (SHORT, MEDIUM, TWO, LONG)[int(rng.integers(4))]
        variant, limit = int(rng.integers(4)), int(rng.integers(2, 9))
        fate = rng.random()
        leaves = 0.1 <= fate < 0.25
        # Of a few tokens there may be no whole word before the last.
        limit = max(limit, 8) if leaves else limit
        row = text_request(brief, f"r{index}", length, variant=variant, max_tokens=limit)
        rows.append(row)
        if fate < 0.1:
            removals.append(Removal((row.request_id,), queued(row.request_id)))
        elif leaves:
            removals.append(Removal((row.request_id,), produced(row.request_id, 1)))
    options = EngineOptions(busy=True, completion_batch_size=FLOOD_SLOTS)
    # After all have ended, a whole batch of longer answers needs all slots; and before, where only
    # that shows how many there are.
    before, again = (
        [
            text_request(brief, f"{name}{i}", SHORT, variant=i % 4, max_tokens=2 * ANSWER)
            for i in range(FLOOD_SLOTS)
        ]
        for name in (_BEFORE, _AGAIN)
    )
    removed = {name for removal in removals for name in removal.request_ids}
    last = [row.request_id for row in rows if row.request_id not in removed][-1]
    arrivals = [together(*rows), together(*again, when=gone(last))]
    if brief.library == _NAMED:
        flood_after = together(*rows, when=gone(before[-1].request_id))
        arrivals = [together(*before), flood_after, arrivals[1]]
    return [Schedule("flood", tuple(arrivals), tuple(removals), options=options)]


def slots_again(trace: Trace) -> bool:
    """Whether requests after the flood used half of the slots, or of those that the first used."""
    before, again = (
        max(
            sum(name.startswith(wave) for name in step.in_stage(Stage.DECODE))
            for step in trace.steps
        )
        for wave in (_BEFORE, _AGAIN)
    )
    return again >= min(FLOOD_SLOTS, before or FLOOD_SLOTS) // 2 > 0


def all_ended(trace: Trace) -> bool:
    """Whether each request whose client stayed was answered."""
    staying = {r.request_id for r in trace.schedule.requests} - trace.schedule.removed_ids
    return all(trace.stream(name).finish_reason is not None for name in staying)


# Malformed requests that are made together.
_PROBE_GROUPS = {
    "bodies": ("no_json", "invalid_utf8", "json_list", "huge_body"),
    "messages": ("no_messages", "messages_", "message_", "content_"),
    "numbers": ("zero_", "negative_", "max_", "temperature_", "top_"),
    "fields": ("logit_bias_", "stream_"),
    "media": ("no_image", "no_base64"),
    "model": ("unknown_model",),
    "empty": ("empty_content",),
    "stop_number": ("stop_number",),
    "stop_of_numbers": ("stop_of_numbers",),
}


def malformed(brief: Brief) -> list[Schedule]:
    """Each group of malformed requests arrives while valid ones decode, and a valid one follows."""
    schedules = []
    for name, prefixes in _PROBE_GROUPS.items():
        kinds = [kind for kind in brief.probes if kind.startswith(prefixes)]
        if not kinds:
            continue
        rows = requests_of(brief, (SHORT, MEDIUM), 4 * ANSWER)
        after = text_request(brief, "next", TWO, max_tokens=4)
        schedules.append(
            Schedule(
                name,
                (together(*rows), Arrival((after,), gone(f"r{MEDIUM}"))),
                probes=tuple(Probe(kind, produced(f"r{SHORT}", 1)) for kind in kinds),
            )
        )
    return schedules


def probed(trace: Trace) -> bool:
    """Whether a malformed request was sent."""
    return any(step.probes for step in trace.steps)
