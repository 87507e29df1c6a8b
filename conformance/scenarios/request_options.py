"""Rungs with per-request options: stop sequences, samplers, processors; and invalid calls."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from msgspec.structs import replace as replace_fields

from conformance.core.engine import Capability
from conformance.core.engine_options import EngineOptions
from conformance.core.schedule import Arrival, Probe, Request, Schedule
from conformance.core.token_choice import Processor, Sampler
from conformance.core.trace import FinishReason, Trace
from conformance.scenarios import engine_sampling
from conformance.scenarios import witnesses as seen
from conformance.scenarios.build import (
    IN_PIECES,
    LASTING,
    LONG,
    MEDIUM,
    SHORT,
    TWO,
    at_once,
    gone,
    produced,
    text_request,
    together,
)
from conformance.scenarios.scenario import Brief, Scenario, Witness

# Capabilities for requests that choose their tokens differently from other rows.
_SAMPLING = frozenset({Capability.SAMPLERS, Capability.LATE_JOIN})
# Invalid calls that are made together; calls not listed are bad batch sizes.
_PROBE_GROUPS = {
    "mismatched_lists": ("mismatched_",),
    "bad_requests": ("empty_", "zero_max", "negative_max"),
    "bad_samplers": ("sampler_",),
    "unknown_uid": ("unknown_",),
    "bad_sizes": ("zero_completion", "negative_prefill", "zero_prefill"),
}


def _stop_sequences(brief: Brief) -> list[Schedule]:
    """Stop sequences taken from the oracle's output, so that they match, or almost match."""
    options = EngineOptions()

    def oracle_tokens(length: int) -> tuple[int, ...]:
        return brief.solo(text_request(brief, "probe", length, max_tokens=LASTING), options).tokens

    low, high = brief.tokens
    long, medium, short, two = (oracle_tokens(n) for n in (LONG, MEDIUM, SHORT, TWO))
    first = brief.solo(text_request(brief, "late", SHORT, variant=1), options).tokens[0]
    never = next(t for t in range(low, high) if t not in {*long, *medium, *short, *two, first})
    rows = [
        # Matches across the join of the second arrival.
        text_request(brief, "across", LONG, max_tokens=LASTING, stop=(long[:3],)),
        # The longer sequence begins to match and fails; the shorter one inside it must match.
        text_request(
            brief,
            "overlap",
            MEDIUM,
            max_tokens=LASTING,
            stop=((medium[1], medium[2], never), (medium[2], medium[3])),
        ),
        text_request(
            brief, "single", SHORT, max_tokens=LASTING, stop=((short[4],), (never, short[1]))
        ),
        text_request(brief, "without", TWO, max_tokens=LASTING),
        # Matches from its first token to its last, when rows before it have left: a matcher that is
        # not moved, or begins anew at a join, misses it.
        text_request(brief, "last", TWO, max_tokens=LASTING, stop=((two[0], never), two)),
    ]
    # Takes the slot of a row whose matcher was in the middle of a sequence. If it stopped at its
    # first token, it would not decode beside another row.
    single = never if first == short[4] else short[4]
    late = text_request(brief, "late", SHORT, variant=1, stop=((long[1], long[2]), (single,)))
    arrivals = (together(*rows), together(late, when=produced("across", 1)))
    return [
        Schedule("stop_sequences", arrivals, options=options),
        _stop_edges(brief),
        _rest_of_another(brief),
    ]


def _rest_of_another(brief: Brief) -> Schedule:
    """A limit ends a row within its sequence; one that comes later begins with the rest of it."""
    rows = [
        text_request(brief, name, length, variant=2, max_tokens=limit)
        for name, length, limit in (
            ("begins", MEDIUM, 2),
            ("lasts", LONG, LASTING),
            ("rest", TWO, LASTING),
        )
    ]
    begins, _, rest = (brief.solo(row, EngineOptions()).tokens for row in rows)
    stop = ((*begins[-1:], *rest[:1]),)
    first, beside, late = (replace_fields(row, stop=stop) for row in rows)
    arrivals = (together(first, beside), together(late, when=gone("begins")))
    return Schedule("rest_of_another", arrivals)


def _stop_edges(brief: Brief) -> Schedule:
    """Sequences that are empty, match the first token, or never: too long, or across the start."""

    def tokens(request: Request) -> tuple[int, ...]:
        return brief.solo(request, EngineOptions()).tokens

    first = text_request(brief, "first", MEDIUM)
    cut = text_request(brief, "too_long", LONG)
    start = text_request(brief, "over_start", SHORT, variant=1)
    last = text_request(brief, "with_last", TWO, max_tokens=4)
    low, high = brief.tokens
    unseen = next(t for t in range(low, high) if t not in {*tokens(first), *tokens(cut)})
    stops: dict[str, tuple[tuple[int, ...], ...]] = {
        # An empty sequence matches nothing, alone or with others.
        "empty": ((),),
        "first": ((), tokens(first)[:1]),
        "too_long": ((*tokens(cut), unseen),),
        # The prompt's last token is not part of the output.
        "over_start": ((start.prompt[-1], tokens(start)[0]),),
        # It matches exactly when the limit is reached.
        "with_last": (tokens(last)[-2:],),
    }
    rows = [text_request(brief, "empty", TWO, variant=1), first, cut, start, last]
    if Capability.SAMPLERS in brief.capabilities:
        # A shorter sequence ends inside a longer one that continues.
        inside = text_request(brief, "inside", MEDIUM, variant=1, max_tokens=LASTING)
        rows.append(inside)
        begun = tokens(inside)
        stops["inside"] = ((*begun[:3], unseen), begun[1:3])
    stopping = [replace_fields(row, stop=stops[row.request_id]) for row in rows]
    return at_once("edges", *stopping)


def _samplers(brief: Brief) -> list[Schedule]:
    sampled = _sampled(brief) if brief.capabilities >= _SAMPLING else []
    return [*sampled, _penalty_in_pieces(brief), *engine_sampling.default_schedules(brief)]


def _penalty_in_pieces(brief: Brief) -> Schedule:
    """A penalty counts the tokens of all pieces. A single row, so no other row can be the cause."""
    penalty = Processor("library", {"repetition_penalty": 3.0, "repetition_context_size": LONG})
    request = text_request(brief, "only", LONG, processors=(penalty,))
    return at_once("penalty_in_pieces", request, options=IN_PIECES)


def _sampled(brief: Brief) -> list[Schedule]:
    low, high = brief.tokens
    bias = {str(low + (high - low) // 3): 4.0, str(high - 1): -6.0}
    penalty = Processor("library", {"repetition_penalty": 1.4, "repetition_context_size": 12})
    biased = Processor("library", {"logit_bias": bias})
    counting = Processor("library", {"frequency_penalty": 0.7, "presence_penalty": 0.3})
    seeded = [Sampler("seeded", {"temperature": 0.8, "seed": seed}) for seed in (1, 2, 3)]
    # A minimal share of 1 leaves only the likeliest token, which has exactly that share.
    chain = Sampler("library", {"temp": 0.7, "top_p": 0.95, "min_p": 1.0, "top_k": 1})
    rows = [
        text_request(brief, "plain", MEDIUM, max_tokens=6),
        text_request(brief, "seeded", LONG, max_tokens=3, sampler=seeded[0]),
        text_request(brief, "penalty", SHORT, max_tokens=6, processors=(penalty,)),
        text_request(
            brief, "both", TWO, max_tokens=4, sampler=seeded[1], processors=(biased, counting)
        ),
    ]
    late = [
        text_request(brief, "late_plain", SHORT, variant=1, max_tokens=4),
        text_request(
            brief,
            "late_biased",
            TWO,
            variant=1,
            max_tokens=4,
            sampler=seeded[2],
            processors=(biased,),
        ),
    ]
    shared = [
        text_request(brief, f"s{n}", n, max_tokens=3, sampler=chain) for n in (LONG, SHORT, TWO)
    ]
    narrow = [
        text_request(brief, f"p{n}", n, max_tokens=3, sampler=engine_sampling.NUCLEUS)
        for n in (MEDIUM, SHORT, TWO)
    ]
    rare = [
        text_request(brief, f"x{n}", n, max_tokens=3, sampler=engine_sampling.UNLIKELY)
        for n in (MEDIUM, SHORT, TWO)
    ]
    return [
        Schedule("per_row", (together(*rows), together(*late, when=produced("plain", 2)))),
        at_once("shared", *shared),
        at_once("shared_top_p", *narrow),
        at_once("shared_xtc", *rare),
    ]


def _invalid(brief: Brief) -> list[Schedule]:
    schedules = []
    for name, prefixes in _PROBE_GROUPS.items():
        kinds = [kind for kind in brief.probes if kind.startswith(prefixes)]
        arrivals = _alike(brief) if name == "bad_samplers" else _ragged(brief)
        if not kinds:
            continue
        schedules.append(
            Schedule(
                name,
                arrivals,
                probes=tuple(Probe(kind, produced("a", 1)) for kind in kinds),
                options=EngineOptions(prefill_batch_size=2, completion_batch_size=2),
            )
        )
    return [*schedules, _fewer_slots(brief)]


def _ragged(brief: Brief) -> tuple[Arrival, ...]:
    rows: list[Request] = [
        text_request(brief, "a", SHORT, max_tokens=4),
        text_request(brief, "b", TWO, max_tokens=3),
        text_request(brief, "c", TWO, variant=1, max_tokens=2),
    ]
    after = together(text_request(brief, "next", SHORT, variant=1, max_tokens=2), when=gone("b"))
    return together(*rows), after


def _alike(brief: Brief) -> tuple[Arrival, ...]:
    """Without padding, since a refused sampler affects shared random numbers, not columns."""
    rows = [
        text_request(brief, name, SHORT, variant=n, max_tokens=3) for n, name in enumerate("ab")
    ]
    return (together(*rows),)


def _fewer_slots(brief: Brief) -> Schedule:
    """More prompts may be prefilled together than may decode: they wait, but must complete."""
    rows = [text_request(brief, f"r{i}", TWO, variant=i, max_tokens=2) for i in range(2)]
    options = EngineOptions(prefill_batch_size=2, completion_batch_size=1)
    return at_once("fewer_slots", *rows, options=options)


def _stopped(trace: Trace) -> bool:
    reasons = {trace.stream(r.request_id).finish_reason for r in trace.schedule.requests}
    return {FinishReason.STOP, FinishReason.LENGTH} <= reasons


def _stopped_first(trace: Trace) -> bool:
    streams = (trace.stream(r.request_id) for r in trace.schedule.requests)
    return any(s.finish_reason is FinishReason.STOP and len(s.tokens) == 1 for s in streams)


def _mixed_samplers(trace: Trace) -> bool:
    requests = trace.schedule.requests
    return len({repr(r.sampler) for r in requests if r.sampler}) > 1 and any(
        not r.sampler and not r.processors for r in requests
    )


def _penalised_in_pieces(trace: Trace) -> bool:
    return any(r.processors for r in trace.schedule.requests) and seen.chunks(3).seen(trace)


def _probed(trace: Trace) -> bool:
    return any(step.probes for step in trace.steps)


STOP_SEQUENCES = Scenario(
    "stop_sequences",
    130,
    "stop sequences of several tokens, overlapping, across a join",
    frozenset({Capability.STOP, Capability.LATE_JOIN}),
    _stop_sequences,
    (
        Witness("rows that stop beside rows that do not", _stopped).shown_in(
            "stop_sequences", "edges"
        ),
        Witness("a row that stops at its first token", _stopped_first).shown_in("edges"),
        seen.late_join().shown_in("stop_sequences"),
    ),
)
SAMPLERS = Scenario(
    "samplers",
    140,
    "samplers and logits processors for each row",
    frozenset({Capability.PROCESSORS, Capability.CHUNKED}),
    _samplers,
    (
        Witness("other samplers beside none", _mixed_samplers, needs=_SAMPLING).shown_in("per_row"),
        replace(seen.late_join(), needs=_SAMPLING).shown_in("per_row"),
        Witness(
            "a row with its own processors beside one with the engine's",
            engine_sampling.joined_either_way,
            needs=engine_sampling.OF_DEFAULTS,
        ).shown_in("own_joins_defaults", "defaults_join_own"),
        Witness(
            "a token that the engine's sampler chose",
            engine_sampling.chose_second,
            needs=engine_sampling.OF_DEFAULTS | {Capability.LOGPROBS},
        ).shown_in("own_joins_defaults", "defaults_join_own"),
        Witness(
            "processors that join after all others have left",
            engine_sampling.last_processor_left,
            needs=frozenset({Capability.LATE_JOIN}),
        ).shown_in("processors_leave"),
        Witness(
            "processors that join after a row without has left",
            engine_sampling.plain_left,
            needs=frozenset({Capability.LATE_JOIN}),
        ).shown_in("plain_leaves"),
        Witness(
            "a history of more than 256 tokens",
            partial(engine_sampling.history_of, engine_sampling.STEP),
            needs=frozenset({Capability.SAMPLERS}),
        ).shown_in("history_grows"),
        Witness("a penalty over a prompt in pieces", _penalised_in_pieces).shown_in(
            "penalty_in_pieces"
        ),
    ),
)
INVALID = Scenario(
    "invalid",
    170,
    "wrong calls: refused, and nobody is harmed; sizes that do not fit each other",
    frozenset({Capability.PROBES, Capability.SLOTS}),
    _invalid,
    (
        Witness("an invalid call", _probed).shown_in(*_PROBE_GROUPS),
        seen.rows_together(2).shown_in(*_PROBE_GROUPS),
    ),
)
