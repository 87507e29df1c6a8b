"""Samplers and processors of rows and of the engine, alone and mixed, and their witnesses.

An engine keeps per-request samplers and processors in addition to its defaults. Rows of both kinds
join each other here in both orders, and leave. All prompts have one length: padding has its own
scenarios.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from msgspec.structs import replace

from conformance.core.engine import Capability
from conformance.core.engine_options import EngineOptions
from conformance.core.schedule import Arrival, Request, Schedule, Stage
from conformance.core.token_choice import Processor, Sampler
from conformance.core.trace import Trace
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
    produced,
    text_request,
    together,
)
from conformance.scenarios.lengthy import if_it_fits
from conformance.scenarios.scenario import Brief


def schedules(brief: Brief) -> list[Schedule]:
    """All schedules, for engines with per-request processors and late joins."""
    makers = (_processors_leave, _plain_joins, _plain_leaves, _penalties)
    return [make(brief) for make in makers]


_HISTORY = 128


def bias(brief: Brief, number: int) -> Processor:
    """A processor that ignores the history: it favours some tokens, or many.

    Other tokens for other numbers.
    """
    low, high = brief.tokens
    count = high - low
    parts = 16 if number % 2 else max(48, 3 * count // 4)
    liked = {low + (count * part // parts + number) % count for part in range(parts)}
    return Processor("library", {"logit_bias": {str(token): 4.0 for token in sorted(liked)}})


def penalties(brief: Brief, number: int) -> tuple[tuple[Processor, ...], ...]:
    """Lists of processors; of four kinds, and others for other numbers.

    A penalty's history is longer than the default, and than 64 tokens.
    """
    size = {"repetition_context_size": _HISTORY}
    repeated = Processor("library", {"repetition_penalty": 1.2 + number / 20} | size)
    counted = Processor(
        "library", {"frequency_penalty": 0.3 + number / 25, "presence_penalty": 0.2}
    )
    return ((repeated,), (counted,), (bias(brief, number),), (bias(brief, number), repeated))


def _processors_leave(brief: Brief) -> Schedule:
    """Rows with processors leave from between others; one without joins, then one with.

    A list of rows that is empty by then is too short for both joining rows:
    https://github.com/Blaizzy/mlx-vlm/pull/1583.
    """
    outputs = {"a": 2, "plain": LASTING, "b": 4, "other": LASTING}
    given = {"a": (bias(brief, 1),), "b": (bias(brief, 2),)}
    rows = [
        text_request(brief, name, MEDIUM, variant=n, max_tokens=out, processors=given.get(name, ()))
        for n, (name, out) in enumerate(outputs.items())
    ]
    bare = text_request(brief, "bare", MEDIUM, variant=5, max_tokens=LASTING)
    own = (bias(brief, 3),)
    late = text_request(brief, "late", MEDIUM, variant=4, max_tokens=3, processors=own)
    joins = (together(bare, when=gone("b")), together(late, when=produced("bare", 2)))
    return Schedule("processors_leave", (together(*rows), *joins))


def _plain_joins(brief: Brief) -> Schedule:
    """A row with processors leaves; one without joins the other without, which then leaves, too.

    A list that had entries for the first rows has none for the joining row:
    https://github.com/Blaizzy/mlx-vlm/pull/1451.
    """
    rows = [
        text_request(brief, "own", MEDIUM, variant=1, max_tokens=2, processors=(bias(brief, 1),)),
        text_request(brief, "other", MEDIUM, variant=2, max_tokens=5),
    ]
    late = text_request(brief, "bare", MEDIUM, variant=3, max_tokens=LASTING)
    return Schedule("plain_joins", (together(*rows), together(late, when=gone("own"))))


def _plain_leaves(brief: Brief) -> Schedule:
    """A row without processors leaves others without; then rows with processors join.

    Lists that are cut only if some row has a processor are longer than the batch by then:
    https://github.com/ml-explore/mlx-lm/pull/1772.
    """
    rows = [
        text_request(brief, name, MEDIUM, variant=n, max_tokens=out)
        for n, (name, out) in enumerate({"a": 2, "plain": LASTING}.items())
    ]
    late = [
        text_request(
            brief, f"late_{n}", MEDIUM, variant=n, max_tokens=3, processors=(bias(brief, n),)
        )
        for n in (2, 3)
    ]
    return Schedule("plain_leaves", (together(*rows), together(*late, when=gone("a"))))


def _penalties(brief: Brief) -> Schedule:
    """Penalties count the tokens of their own row, including its prompt; other rows have none."""
    repeated = Processor("library", {"repetition_penalty": 1.4, "repetition_context_size": 12})
    counted = Processor("library", {"frequency_penalty": 0.7, "presence_penalty": 0.3})
    # Correct even if a single stream shows processors only the last token of a prompt.
    last = Processor("library", {"repetition_penalty": 3.0, "repetition_context_size": 1})
    own = {"repeated": (repeated,), "plain": (), "counted": (counted,), "last": (last,)}
    rows = [
        text_request(brief, name, MEDIUM, variant=variant, max_tokens=2 + variant, processors=given)
        for variant, (name, given) in enumerate(own.items())
    ]
    return at_once("penalties", *rows)


# Takes the second likeliest token: never random, and never the engine's own choice.
SECOND = Sampler("rank", {"rank": 1})
# Takes the least likely of the likely tokens, for each row separately.
UNLIKELY = Sampler(
    "library", {"temp": 0.7, "xtc_probability": 1.0, "xtc_threshold": 0.05, "top_k": 1}
)
# The smallest nucleus holds only the best token; another row's would hold more, or none.
NUCLEUS = Sampler("library", {"temp": 0.7, "top_p": 0.01})
# The same where many tokens may be likely, and the smallest nucleus has several.
BEST = replace(NUCLEUS, args=NUCLEUS.args | {"top_k": 1})
# Buffers of a row's tokens grow by this many (mlx_lm/models/cache.py:1469).
STEP = 256
# Filters of samplers that are compared.
_NUCLEUS: dict[str, Any] = {"top_p": 0.6}
_LEAST: dict[str, Any] = {"min_p": 0.2}
_LIKELIEST: dict[str, Any] = {"top_k": 7}
OF_DEFAULTS = frozenset({Capability.DEFAULTS, Capability.PROCESSORS, Capability.LATE_JOIN})


def default_schedules(brief: Brief) -> list[Schedule]:
    """Schedules for the scenario ``samplers`` that the engine can run."""
    found: list[Schedule] = []
    if brief.capabilities >= OF_DEFAULTS:
        found += [_own_joins_defaults(brief), _defaults_join_own(brief)]
    if {Capability.PROCESSORS, Capability.LATE_JOIN} <= brief.capabilities:
        found += schedules(brief)
    if Capability.SAMPLERS in brief.capabilities:
        found += if_it_fits(brief, _history_grows(brief))
        found += [_of_one_token(brief), _of_twenty(brief)]
        found.append(_two_into_prefill(brief))
        found += _compared(brief)
    if Capability.DEFAULTS in brief.capabilities:
        found += [_of_engine(brief, "engines_xtc", UNLIKELY)]
        found += [_of_engine(brief, "engines_top_p", BEST)]
        found += _engines_compared(brief)
    return found


def ends_apart(brief: Brief) -> Schedule:
    """Rows that end at different steps, all with the engine's default sampler and processors."""
    options, given = _defaults(brief)
    outputs = {LONG: 2, SHORT: 6, MEDIUM: 1, TWO: 4}
    rows = [text_request(brief, f"r{n}", n, max_tokens=out, **given) for n, out in outputs.items()]
    return at_once("defaults", *rows, options=options)


def _defaults(brief: Brief) -> tuple[EngineOptions, dict[str, Any]]:
    """Options of an engine with a sampler and a processor, and the expected ones of its rows."""
    given = {"sampler": SECOND, "processors": (bias(brief, 0),)}
    return EngineOptions(sampler=SECOND, processors=(bias(brief, 0),)), given


def _plain(brief: Brief, given: dict[str, Any]) -> tuple[Request, ...]:
    return tuple(
        text_request(brief, f"engines_{n}", MEDIUM, variant=n, max_tokens=LASTING, **given)
        for n in range(2)
    )


def _own(brief: Brief, given: dict[str, Any]) -> list[Request]:
    """A request with its own processors and, if engines accept one, a request with a sampler."""
    own = {"processors": (bias(brief, 1),)}
    found = [
        text_request(brief, "processors", MEDIUM, variant=2, max_tokens=LASTING, **given | own)
    ]
    if Capability.SAMPLERS in brief.capabilities:
        seeded = {"sampler": Sampler("seeded", {"temperature": 0.8, "seed": 4})}
        found.append(
            text_request(brief, "sampler", MEDIUM, variant=3, max_tokens=LASTING, **given | seeded)
        )
    return found


def _of_engine(brief: Brief, name: str, sampler: Sampler) -> Schedule:
    """Rows whose samplers filter by what is likely in their own row; no padding."""
    rows = [
        text_request(brief, f"r{variant}", MEDIUM, variant=variant, max_tokens=3, sampler=sampler)
        for variant in range(3)
    ]
    return at_once(name, *rows, options=EngineOptions(sampler=sampler))


def _own_joins_defaults(brief: Brief) -> Schedule:
    options, given = _defaults(brief)
    late = [
        together(request, when=produced("engines_0", after))
        for after, request in enumerate(_own(brief, given), start=1)
    ]
    arrivals = (together(*_plain(brief, given)), *late)
    return Schedule("own_joins_defaults", arrivals, options=options)


def _defaults_join_own(brief: Brief) -> Schedule:
    options, given = _defaults(brief)
    # Each in its own call: see the adapter of mlx-lm.
    first: list[Arrival] = [together(request) for request in _own(brief, given)]
    late = together(*_plain(brief, given), when=produced("processors", 2))
    return Schedule("defaults_join_own", (*first, late), options=options)


def _history_grows(brief: Brief) -> Schedule:
    """A penalty's tokens need a second step of their buffer while it decodes."""
    penalty = {"repetition_penalty": 1.4, "repetition_context_size": 2 * STEP}
    processors = (Processor("library", penalty),)
    rows = (
        text_request(brief, "long", STEP - 2, max_tokens=LASTING, processors=processors),
        text_request(brief, "short", SHORT, max_tokens=LASTING, processors=processors),
    )
    return at_once("history_grows", *rows)


def _of_one_token(brief: Brief) -> Schedule:
    """Penalties, each alone, for prompts of one token, without history before the first."""
    penalties = (
        {"presence_penalty": 1.0},
        {"repetition_penalty": 0.6, "repetition_context_size": 12},
        {"frequency_penalty": 1.0},
    )
    rows = [
        text_request(
            brief,
            f"r{row}",
            1,
            variant=row,
            max_tokens=LASTING,
            processors=(Processor("library", penalty),),
        )
        for row, penalty in enumerate(penalties)
    ]
    return at_once("of_one_token", *rows)


def _of_twenty(brief: Brief) -> Schedule:
    """Penalties over the library's default number of tokens, in longer prompts; one pad token."""
    penalties = ({"presence_penalty": 1.0}, {"repetition_penalty": 1.4}, {"frequency_penalty": 1.0})
    rows = [
        text_request(
            brief,
            f"r{row}",
            LONG - row % 2,
            variant=row,
            max_tokens=3,
            processors=(Processor("library", penalty),),
        )
        for row, penalty in enumerate(penalties)
    ]
    return at_once("of_twenty", *rows)


def _two_into_prefill(brief: Brief) -> Schedule:
    """Two rows join a row whose prompt is half done: their caches are empty, its cache is not."""
    half = text_request(brief, "half_done", LONG, max_tokens=2)
    two = [
        text_request(brief, f"r{n}", n, max_tokens=2, processors=(bias(brief, n),))
        for n in (MEDIUM, SHORT)
    ]
    arrivals = (together(half), together(*two, when=in_prefill("half_done", PIECE)))
    return Schedule("two_into_prefill", arrivals, options=IN_PIECES)


def _compared(brief: Brief) -> list[Schedule]:
    """What the library's sampler draws for rows that share it, with each filter and with all.

    Temperatures are high: unlikely tokens are drawn unless a filter removes them. The largest XTC
    threshold removes none: no two tokens have more than half each.
    """
    low, high = brief.tokens
    nucleus = _NUCLEUS | {"xtc_probability": 1.0, "xtc_threshold": 0.5}
    share = {"min_p": 1.0, "min_tokens_to_keep": 9}
    special = {"xtc_special_tokens": [*range(low, high, 2)]}
    sometimes = {"xtc_probability": 0.5, "xtc_threshold": 0.02} | special
    chains: dict[str, dict[str, Any]] = {
        "warm": {},
        "nucleus": nucleus,
        "share": share,
        "least": _LEAST,
        "likeliest": (likeliest := _LIKELIEST),
        "likely": {"top_k": min(70, (high - low) // 2)},
        "without_likely": sometimes,
        "chain": {"top_p": 0.95} | _LEAST | sometimes | likeliest | {"xtc_threshold": 0.0},
    }
    rows = [
        text_request(
            brief,
            f"{name}_{row}",
            MEDIUM,
            variant=row,
            max_tokens=LASTING,
            sampler=_comparing(filters),
        )
        for name, filters in chains.items()
        for row in range(3)
    ]
    return [
        at_once(f"drawn_{name}", *rows[3 * place : 3 * place + 3])
        for place, name in enumerate(chains)
    ]


def _engines_compared(brief: Brief) -> list[Schedule]:
    """The same for the engine's sampler: each filter that only this library has, and some others.

    After one that computes with all tokens comes none of its kind: to it removed tokens are not 0.
    """
    own: list[dict[str, Any]] = [{name: value} for name, value in brief.filters.items()]
    if not own:
        return []
    common = _NUCLEUS | _LEAST | _LIKELIEST
    return [
        _of_engine(brief, f"engines_{'_'.join(filters)}", _comparing(filters))
        for filters in (*own, _NUCLEUS, _LEAST, _LIKELIEST, own[0] | common)
    ]


def _comparing(filters: Mapping[str, Any]) -> Sampler:
    return Sampler("compared", {"temp": 3.0, **filters})


def joined_either_way(trace: Trace) -> bool:
    """Whether a row with its own processors decoded together with one that has the engine's."""
    options = trace.schedule.options
    names = {r.request_id: r.processors != options.processors for r in trace.schedule.requests}
    for step in trace.steps:
        if len({names[name] for name in step.in_stage(Stage.DECODE)}) > 1:
            return bool(options.processors)
    return False


def chose_second(trace: Trace) -> bool:
    """Whether the engine's sampler took a token other than the likeliest."""
    options = trace.schedule.options
    own = {r.request_id for r in trace.schedule.requests if r.sampler == options.sampler}
    return options.sampler is not None and any(
        event.request_id in own
        and event.logprobs is not None
        and event.token != int(np.argmax(event.logprobs))
        for step in trace.steps
        for event in step.output.events
    )


def last_processor_left(trace: Trace) -> bool:
    """Whether a row with processors decoded next to a row that had seen all others leave."""
    has = {r.request_id for r in trace.schedule.requests if r.processors}
    decoding = [set(step.in_stage(Stage.DECODE)) for step in trace.steps]
    for index, rows in enumerate(decoding):
        before = any(rows & earlier and earlier & has for earlier in decoding[:index])
        after = any(rows & later and later & has for later in decoding[index + 1 :])
        if rows and not rows & has and before and after:
            return True
    return False


def plain_left(trace: Trace) -> bool:
    """Whether a row with processors joined rows that had seen one without leave, and none with."""
    has = {r.request_id for r in trace.schedule.requests if r.processors}
    decoding = [set(step.in_stage(Stage.DECODE)) for step in trace.steps]
    for index, rows in enumerate(decoding):
        if rows & has:
            earlier = decoding[:index]
            return any(before & rows and before - rows for before in earlier)
    return False


def history_of(count: int, trace: Trace) -> bool:
    """Whether a row with processors came to have more than ``count`` tokens while it decoded."""
    return any(
        request.processors
        and len(request.prompt) <= count < len(request.prompt) + len(stream.tokens)
        for request in trace.schedule.requests
        if (stream := trace.stream(request.request_id))
    )
