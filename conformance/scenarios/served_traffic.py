"""Requests to a server as many clients send them: at once, with options of their own, no seeds.

What is drawn at random has no single right answer. Yet each token must be one that the request's
options leave, and all tokens together must be as probable as they can be by chance; see the check
``draws``. Greedy neighbours, and requests whose options leave one token, have the right answer of
their single streams.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from msgspec.structs import replace

from conformance.core.engine import Capability
from conformance.core.engine_options import EngineOptions, PrefixCaching
from conformance.core.schedule import Asked, Request, Schedule, Stage
from conformance.core.token_choice import RANDOM, Processor, Sampler
from conformance.core.trace import FinishReason, Trace
from conformance.scenarios.build import (
    LONG,
    MEDIUM,
    SHORT,
    TWO,
    at_once,
    gone,
    one_by_one,
    produced,
    seeded,
    text_request,
    together,
)
from conformance.scenarios.choices import Seeded
from conformance.scenarios.engine_sampling import bias
from conformance.scenarios.scenario import Brief, Scenario, Witness
from conformance.scenarios.served_clients import ANSWER, LASTING
from conformance.scenarios.workloads.mixing import cycled

# Longer than the history that a penalty counts by default.
_LENGTHS = (MEDIUM, LONG, SHORT, TWO, 2 * LONG)
_LASTING = 3 * ANSWER
# More tokens than a server decodes before it looks for new requests would make joins rare.
_JOINS_AT = 2
_SEEDS_ALONE = "mlx_lm"  # the library whose server answers requests with seeds one by one
_AT_ONCE = 8  # clients; a server may reset the connections of more

# By name. Those called the same but for their end are equal requests.
_DRAWN: dict[str, dict[str, float]] = {
    "plain 1": {"temp": 1.0},
    "plain 2": {"temp": 1.0},
    "hot 1": {"temp": 2.0},
    "hot 2": {"temp": 2.0},
    "cold": {"temp": 0.3},
    "of two": {"temp": 2.0, "top_k": 2},
}
# Beside each other one, each of these excludes tokens that are drawn often at this temperature.
_FILTERS: dict[str, dict[str, float]] = {
    "top_k": {"top_k": 3},
    "top_p": {"top_p": 0.6},
    "min_p": {"min_p": 0.2},
    # Excludes the likeliest tokens where several are likely. The default threshold is 0.1.
    "xtc": {"xtc_probability": 1.0, "xtc_threshold": 0.04},
}
# At each step the likeliest token, or the least likely one above the threshold, by a random number.
_HALF_OF_XTC = {"temp": 0.05, "xtc_probability": 0.5, "xtc_threshold": 0.01}
_HOTTER = {"temp": 4.0}
# These leave the likeliest token alone.
_SURE: dict[str, dict[str, float]] = {
    "of one": {"temp": 1.5, "top_k": 1},
    "surest": {"temp": 2.0, "top_p": 0.001},
    "as likely": {"temp": 2.0, "min_p": 1.0},
}
_LITTLE = 0.75  # nats of a bias
_PENALTIES = {"repetition": 1.4, "presence": 1.5, "frequency": 0.9}
_REWARDS = {"presence_penalty": -1.5, "frequency_penalty": -0.9}
_DEFAULT, _SHORT_HISTORY, _LONG_HISTORY = 20, 3, 128  # tokens that a penalty counts
# Tokens of a prompt that are more than a first block of a history's storage, which has 256.
_BLOCK = 300


def _penalty(kind: str, size: int = _LONG_HISTORY) -> Processor:
    """A penalty by the last ``size`` tokens."""
    args: dict[str, float] = {f"{kind}_penalty": _PENALTIES[kind]}
    return Processor("library", args if size == _DEFAULT else args | {f"{kind}_context_size": size})


def _schedules(brief: Brief) -> list[Schedule]:
    ends = _ends(brief)
    found = [_one_by_one(ends), _kept(brief)] if brief.library == _SEEDS_ALONE else []
    return [
        _options(brief),
        ends,
        *found,
        _logprobs(brief),
        _own_logprobs(brief),
        _some_logprobs(brief),
    ]


def _options(brief: Brief) -> Schedule:
    """Sampled and greedy requests with options of every kind, most of which join others."""
    choices = Seeded(brief.seed, 6)
    greedy = list(_greedy(brief))
    solos = [brief.solo(row, EngineOptions()).tokens for row in greedy]
    low, high = brief.tokens
    end = next(t for t in range(low, high) if not any(t in tokens for tokens in solos))
    rows = [*greedy, *_drawing(brief)]
    order = cycled(choices, range(1, len(rows)), len(rows) - 1)
    rows = [replace(rows[at], stop=((end,),)) for at in (0, *order)]
    groups = [rows[at : at + _AT_ONCE] for at in range(0, len(rows), _AT_ONCE)]
    first = rows[0].request_id
    joining = [
        together(*group, when=produced(first, at * _JOINS_AT))
        for at, group in enumerate(groups[1:], 1)
    ]
    arrivals = (together(*groups[0]), *joining)
    options = EngineOptions(busy=True, prefill_batch_size=_AT_ONCE, stop=((end,),))
    return Schedule("options", arrivals, options=options)


def _greedy(brief: Brief) -> Iterator[Request]:
    """Requests with a right answer; the first lasts."""
    low, high = brief.tokens
    only = Processor("library", {"logit_bias": {str((low + high) // 2): 100.0}})
    found: dict[str, dict[str, Any]] = {
        "greedy": {},
        "other": {},
        "biased": {"processors": (bias(brief, 1),)},
        "biased otherwise": {"processors": (bias(brief, 2),)},
        "hardly biased": {"processors": (_hardly(bias(brief, 1)),)},
        "one word": {"processors": (only,)},
        **{
            f"{kind} of {size}": {"processors": (_penalty(kind, size),)}
            for kind in _PENALTIES
            for size in (_SHORT_HISTORY, _LONG_HISTORY)
        },
        "rewarded": {"processors": (Processor("library", _REWARDS),)},
        "penalised long": {"processors": (_penalty("repetition"),)},
        "all": {
            "processors": (
                bias(brief, 3),
                _penalty("repetition"),
                _penalty("presence", _DEFAULT),
                _penalty("frequency", _DEFAULT),
            )
        },
        **{name: {"sampler": Sampler("library", args)} for name, args in _SURE.items()},
    }
    lengths = itertools.cycle(_LENGTHS)
    for at, (name, more) in enumerate(found.items()):
        most = _LASTING if at == 0 else 1 if name == "other" else ANSWER - at % 5
        asked = Asked(streamed=at % 3 != 2)
        length = next(lengths)
        if name == "penalised long":
            length = min(_BLOCK, (brief.longest or 2 * _BLOCK) - 2 * ANSWER)
        yield text_request(brief, name, length, variant=at, max_tokens=most, asked=asked, **more)


def _hardly(processor: Processor) -> Processor:
    """The same, with less than a nat."""
    biases = processor.args["logit_bias"]
    return Processor("library", {"logit_bias": dict.fromkeys(biases, _LITTLE)})


def _drawing(brief: Brief) -> Iterator[Request]:
    """Requests that draw their tokens at random."""
    unrepeated = _penalty("repetition")
    processors: dict[str, tuple[Processor, ...]] = {
        "drawn with a bias": (bias(brief, 4),),
        "drawn unrepeated": (unrepeated,),
        "drawn with all": (bias(brief, 5), unrepeated, *map(_penalty, ("presence", "frequency"))),
    }
    # The server of no other library has XTC.
    filters = [name for name in _FILTERS if name != "xtc" or brief.library == "mlx_lm"]
    found = _DRAWN | {name: {"temp": 1.5} for name in processors}
    if "xtc" in filters:
        # Several, as what it leaves may end an answer early.
        found |= dict.fromkeys(("half of XTC", "with half of XTC"), _HALF_OF_XTC)
    for names in (*itertools.combinations(filters, 2), filters):
        name = "drawn with all" if names is filters else " and ".join(names)
        found[name] = _HOTTER | {key: v for name in names for key, v in _FILTERS[name].items()}
    # A drawn token need not be the likeliest. No other library's server sends both in streams.
    top = {"top_logprobs": 3} if brief.library == "mlx_vlm" else {}
    lengths = itertools.cycle(_LENGTHS)
    for at, (name, args) in enumerate(found.items()):
        equal = name[-1].isdigit()
        yield text_request(
            brief,
            name,
            SHORT if equal else next(lengths),
            variant=0 if equal else 20 + at,
            max_tokens=ANSWER if name in processors else 2 * ANSWER,
            sampler=Sampler(RANDOM, args),
            processors=processors.get(name, ()),
            asked=Asked(streamed=at % 3 != 2, fields=top if at % 2 else {}),
        )


def _one_by_one(schedule: Schedule) -> Schedule:
    """The same requests with seeds, which the server answers one by one, by other code.

    Those whose answers lack text by a known defect of both ways are left out.
    """
    rows = [seeded(row) for row in schedule.requests if not row.request_id.startswith(_OVERLAPS)]
    return one_by_one(
        f"{schedule.name}_one_by_one", rows, EngineOptions(stop=schedule.options.stop)
    )


def _kept(brief: Brief) -> Schedule:
    """A penalised request whose begin, another one's prompt and answer, was kept.

    Streams would be asked for again in between, and find what was kept of themselves.
    """
    whole = Asked(streamed=False)
    first = seeded(text_request(brief, "first", LONG, variant=40, max_tokens=ANSWER, asked=whole))
    said = brief.solo(first, EngineOptions()).tokens
    prompt = first.prompt + said + brief.prompt(SHORT, 41)
    again = replace(first, request_id="again", prompt=prompt, processors=(_penalty("repetition"),))
    return one_by_one(
        "kept_one_by_one", (first, again), EngineOptions(prefix_caching=PrefixCaching())
    )


def _ends(brief: Brief) -> Schedule:
    """Answers that end by one of several stop strings, by one of two end tokens, or by limit."""
    lengths = (MEDIUM, LONG, SHORT, TWO, MEDIUM, LONG, SHORT, TWO)
    names = (
        "first of three",
        "last of four",
        "earlier",
        "later",
        "none",
        "end",
        "other end",
        "one",
    )
    rows = [
        text_request(
            brief,
            name,
            length,
            variant=30 + at,
            max_tokens=1 if name == "one" else ANSWER,
            asked=Asked(streamed=at % 3 != 2),
        )
        for at, (name, length) in enumerate(zip(names, lengths, strict=True))
    ]
    tokens = [brief.solo(row, EngineOptions()).tokens for row in rows]
    others = {token for own in tokens[:5] for token in own} | set(tokens[7])
    one = new_token(tokens[5], others)
    other = new_token(tokens[6], others | set(tokens[5]))
    ends = ((one,), (other,))
    stops = [_stops(brief, row, own) for row, own in zip(rows, tokens, strict=True)]
    given = [
        # A client does not see which end token it was: the first is taken, and must be the one.
        replace(row, stop=(*stop, *sorted(ends, key=lambda end: (*own, *end).index(end[0]))))
        for row, stop, own in zip(rows, stops, tokens, strict=True)
    ]
    found = {row.request_id: (row, own) for row, own in zip(given, tokens, strict=True)}
    given += [last_allowed(*found[name]) for name in ("end", "first of three")]
    given += [replace(row, stop=(*row.stop, *ends)) for row in _overlapping(brief, ends)]
    given += [replace(row, stop=(*row.stop, *ends)) for row in _divided(rows[0], tokens[0])]
    if brief.library == _SEEDS_ALONE:  # no other library's server has XTC
        given.append(_surely_ended(brief, ends))
    return at_once("ends", *given, options=EngineOptions(busy=True, stop=ends))


def last_allowed(row: Request, tokens: Sequence[int]) -> Request:
    """The same request, whose answer's limit allows what ends it, and nothing more."""
    most = next(
        count
        for count in range(1, len(tokens) + 1)
        if any(tuple(tokens[:count][-len(stop) :]) == stop for stop in row.stop)
    )
    return replace(row, request_id=f"{row.request_id} at its limit", max_tokens=most)


def _surely_ended(brief: Brief, ends: tuple[tuple[int, ...], ...]) -> Request:
    """An answer that may only end or go on by one word, with XTC, which never excludes an end.

    Of two likely tokens it excludes the likelier one, which is the end here.
    """
    low, high = brief.tokens
    (one, *_), word = ends, next(t for t in range(low, high) if (t,) not in ends)
    # Logits of a tiny model are within a few nats of each other.
    fields = {"temperature": 1.0, "top_k": 1, "xtc_probability": 1.0, "xtc_threshold": 1e-6}
    bias = {str(one[0]): 1005.0, str(word): 1000.0}
    return text_request(
        brief,
        "ends with XTC",
        MEDIUM,
        max_tokens=ANSWER,
        processors=(Processor("library", {"logit_bias": bias}),),
        stop=ends,
        asked=Asked(fields=fields),
    )


def _divided(row: Request, tokens: Sequence[int]) -> Iterator[Request]:
    """Two equal answers whose stop strings are the same words, divided otherwise.

    The one ends by two words, the other by the second of them.
    """
    new = [at > 1 and token not in tokens[:at] for at, token in enumerate(tokens)]
    at = next((at for at, pair in enumerate(itertools.pairwise(new)) if all(pair)), 0)
    (one, two), never = tokens[at : at + 2], next(t for t in row.prompt if t not in tokens)
    yield replace(row, request_id="by two words", stop=((never,), (one, two)))
    yield replace(row, request_id="by one word", stop=((never, one), (two,)))


_PAIRS = 40  # of tokens, of which answers may consist
_OVERLAPS = "overlapping"


def _overlapping(brief: Brief, ends: Sequence[tuple[int, ...]]) -> Iterator[Request]:
    """An answer whose stop string begins within a part of itself, as ``aab`` does in ``aaab``.

    Streamed and in one piece. It consists of two tokens, so that it repeats itself.
    """
    low, high = brief.tokens
    for first in range(low, min(high - 1, low + 2 * _PAIRS), 2):
        pair = (first, first + 1)
        if any((token,) in ends for token in pair) or len({len(str(token)) for token in pair}) > 1:
            continue
        row = text_request(
            brief, _OVERLAPS, SHORT, max_tokens=ANSWER, processors=(plain_words(pair),)
        )
        if stop := overlap(brief.solo(row, EngineOptions()).tokens):
            yield replace(row, stop=(stop,), asked=Asked())
            name = f"{_OVERLAPS} whole"
            yield replace(row, request_id=name, stop=(stop,), asked=Asked(streamed=False))
            return


def overlap(tokens: Sequence[int]) -> tuple[int, ...]:
    """A part of an answer that is missed by whoever reads on from a part of it that was none.

    Empty if there is none.
    """
    for size in range(3, len(tokens) // 2):
        for begin in range(len(tokens) - size):
            stop, matched = tuple(tokens[begin : begin + size]), 0
            for token in tokens:
                matched = matched + 1 if token == stop[matched] else int(token == stop[0])
                if matched == size:
                    break
            if matched < size:
                return stop
    return ()


def new_token(tokens: Sequence[int], taken: set[int]) -> int:
    """The first token after a few that is none of the others; the last if there is none."""
    return next((t for t in tokens[4:] if t not in taken), tokens[-1])


def _stops(brief: Brief, row: Request, tokens: Sequence[int]) -> tuple[tuple[int, ...], ...]:
    """Stop sequences of unequal lengths: a client knows which ended an answer by its length.

    One begins with the end of the prompt, which is no part of the answer.
    """
    low, high = brief.tokens
    never = next(t for t in range(high - 1, low, -1) if t not in tokens)
    early, late = tuple(tokens[2:4]), tuple(tokens[10:13])
    begun, nowhere = (*tokens[:1], never, never), (never, never, *tokens[:2])
    found = {
        "first of three": (early, begun, nowhere),
        "last of four": (begun, nowhere, (*nowhere, never), early),
        "earlier": (late, early),
        "later": (early, late),
        "none": (begun, nowhere, (row.prompt[-1], *tokens[:1])),
    }
    return found.get(row.request_id, ())


def _logprobs(brief: Brief) -> Schedule:
    """Logprobs of the likeliest tokens, of streams and of answers in one piece, next to others."""
    rows = [
        text_request(
            brief,
            f"r{at}",
            length,
            variant=40 + at,
            max_tokens=ANSWER // 2 + (0, 4, 1, 6)[at],
            asked=Asked(streamed=at % 2 == 0, fields={"top_logprobs": 2 + at}),
        )
        for at, length in enumerate((MEDIUM, LONG, SHORT, TWO))
    ]
    return at_once("logprobs", *rows, options=EngineOptions(busy=True))


def _own_logprobs(brief: Brief) -> Schedule:
    """Answers in one piece with their tokens' own logprobs, next to answers without logprobs."""
    lengths = (MEDIUM, LONG, SHORT, TWO, LONG + 1, SHORT + 1)
    rows = [
        _with_or_without(
            brief,
            at,
            n,
            {"logprobs": at % 2 == 0},
            streamed=at % 4 == 1,
            most=ANSWER // 2 + at,  # each row ends beside those after it
        )
        for at, n in enumerate(lengths)
    ]
    return at_once("own_logprobs", *rows, options=EngineOptions(busy=True))


def _with_or_without(
    brief: Brief,
    at: int,
    length: int,
    fields: dict[str, Any],
    *,
    streamed: bool,
    most: int = ANSWER // 2,
) -> Request:
    """A request with logprobs, or without if ``fields`` say so."""
    bare = fields.get("logprobs") is False
    return text_request(
        brief,
        f"{'without' if bare else 'with'} {at}",
        length,
        variant=50 + at,
        max_tokens=most,
        # An answer without logprobs is read from its text, in which special tokens are missing.
        processors=(plain_words(range(*brief.tokens, 8)),) if bare else (),
        asked=Asked(streamed=streamed, fields=fields),
    )


def _some_logprobs(brief: Brief) -> Schedule:
    """Requests with logprobs join one without; then one without joins one with logprobs."""

    def row(at: int, length: int, most: int, *, asked: bool) -> Request:
        fields: dict[str, Any] = {"top_logprobs": 2 + at} if asked else {"logprobs": False}
        return _with_or_without(brief, at, length, fields, streamed=at % 2 == 0, most=most)

    most = min(LASTING // 4, (brief.longest or LASTING) - MEDIUM - 2)
    first, second = row(0, MEDIUM, most, asked=False), row(4, SHORT, most, asked=True)
    joining = [row(1, LONG, ANSWER, asked=True), row(2, SHORT, ANSWER, asked=True)]
    return Schedule(
        "some_logprobs",
        (
            together(first),
            together(*joining, row(3, TWO, ANSWER, asked=False), when=produced("without 0", 2)),
            together(second, when=gone("without 0")),
            together(row(5, LONG, ANSWER, asked=False), when=produced("with 4", 2)),
        ),
    )


def plain_words(tokens: Iterable[int]) -> Processor:
    """Lets only these tokens be chosen, none of them special."""
    return Processor("library", {"logit_bias": {str(token): 100.0 for token in tokens}})


def _some_bare(trace: Trace) -> bool:
    """Whether answers with and without logprobs were on their way at once."""
    asked = {
        r.request_id: r.asked.fields.get("logprobs") is not False
        for r in trace.schedule.requests
        if r.asked
    }
    return any(
        {asked[n] for n in step.in_stage(Stage.DECODE)} == {True, False} for step in trace.steps
    )


def _beside_others(trace: Trace) -> bool:
    """Whether drawn answers, and others whose tokens are known, were on their way at once."""
    drawn = {request.request_id: request.random for request in trace.schedule.requests}
    return any(
        {drawn[name] for name in step.in_stage(Stage.DECODE)} == {True, False}
        for step in trace.steps
    )


def _differ(trace: Trace) -> bool:
    """Whether equal requests had different answers."""
    names = {r.request_id for r in trace.schedule.requests}
    pairs = [(name, f"{name[:-1]}2") for name in names if name.endswith(" 1")]
    return any(trace.stream(one).tokens != trace.stream(other).tokens for one, other in pairs)


def _ended(trace: Trace) -> bool:
    """Whether answers ended by a stop string, by each end token, and by their limits."""
    ends = {"later", "earlier", "end", "other end"}
    reasons = {
        r.request_id: trace.stream(r.request_id).finish_reason for r in trace.schedule.requests
    }
    stopped = {name for name, reason in reasons.items() if reason is FinishReason.STOP}
    return stopped >= ends and FinishReason.LENGTH in reasons.values()


SERVED_TRAFFIC = Scenario(
    "served_traffic",
    365,
    "requests with options of their own and without seeds, beside greedy ones",
    frozenset({Capability.SERVED, Capability.SAMPLERS, Capability.PROCESSORS, Capability.STOP}),
    _schedules,
    (
        Witness("drawn answers beside others", _beside_others, beside=True).shown_in("options"),
        Witness("equal requests with different answers", _differ).shown_in("options"),
        Witness("answers that end in every way", _ended).shown_in("ends"),
        Witness("answers with and without logprobs", _some_bare, beside=True).shown_in(
            "*_logprobs"
        ),
    ),
)
