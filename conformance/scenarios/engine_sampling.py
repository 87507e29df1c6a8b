"""Engine-level default samplers and processors, alone and mixed with per-request ones.

An engine keeps per-request samplers and processors in addition to its defaults. Rows of both kinds
join each other here in both orders. All prompts have one length: padding has its own scenarios.
"""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from conformance.core.engine import Capability
from conformance.core.engine_options import EngineOptions
from conformance.core.schedule import Arrival, Request, Schedule
from conformance.core.token_choice import Processor, Sampler
from conformance.scenarios import row_processors
from conformance.scenarios.build import (
    LASTING,
    LONG,
    MEDIUM,
    PIECE,
    SHORT,
    TWO,
    in_prefill,
    produced,
    text_request,
    together,
)
from conformance.scenarios.lengthy import if_it_fits
from conformance.scenarios.row_processors import bias
from conformance.scenarios.scenario import Brief

# Takes the second likeliest token: never random, and never the engine's own choice.
SECOND = Sampler("rank", {"rank": 1})
# Takes the least likely of the likely tokens, for each row separately.
UNLIKELY = Sampler(
    "library", {"temp": 0.7, "xtc_probability": 1.0, "xtc_threshold": 0.05, "top_k": 1}
)
# The smallest nucleus holds only the best token; another row's would hold more, or none.
NUCLEUS = Sampler("library", {"temp": 0.7, "top_p": 0.01})
# Buffers of a row's tokens grow by this many (mlx_lm/models/cache.py:1469).
STEP = 256
OF_DEFAULTS = frozenset({Capability.DEFAULTS, Capability.PROCESSORS, Capability.LATE_JOIN})


def default_schedules(brief: Brief) -> list[Schedule]:
    """Schedules for the scenario ``samplers`` that the engine can run."""
    found: list[Schedule] = []
    if brief.capabilities >= OF_DEFAULTS:
        found += [_own_joins_defaults(brief), _defaults_join_own(brief)]
    if {Capability.PROCESSORS, Capability.LATE_JOIN} <= brief.capabilities:
        found += row_processors.schedules(brief)
    if Capability.SAMPLERS in brief.capabilities:
        found += if_it_fits(brief, _history_grows(brief))
        found += [_of_one_token(brief), _of_twenty(brief)]
        found.append(_two_into_prefill(brief))
        found += _compared(brief)
    if Capability.DEFAULTS in brief.capabilities:
        found += [_of_engine(brief, "engines_xtc", UNLIKELY)]
        # If many tokens are equally likely, the smallest nucleus has several.
        best = replace(NUCLEUS, args=NUCLEUS.args | {"top_k": 1})
        found += [_of_engine(brief, "engines_top_p", best)]
    return found


def ends_apart(brief: Brief) -> Schedule:
    """Rows that end at different steps, all with the engine's default sampler and processors."""
    options, given = _defaults(brief)
    outputs = {LONG: 2, SHORT: 6, MEDIUM: 1, TWO: 4}
    rows = [text_request(brief, f"r{n}", n, max_tokens=out, **given) for n, out in outputs.items()]
    return Schedule("defaults", (together(*rows),), options=options)


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
    return Schedule(name, (together(*rows),), options=EngineOptions(sampler=sampler))


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
    return Schedule("history_grows", (together(*rows),))


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
    return Schedule("of_one_token", (together(*rows),))


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
    return Schedule("of_twenty", (together(*rows),))


def _two_into_prefill(brief: Brief) -> Schedule:
    """Two rows join a row whose prompt is half done: their caches are empty, its cache is not."""
    half = text_request(brief, "half_done", LONG, max_tokens=2)
    two = [
        text_request(brief, f"r{n}", n, max_tokens=2, processors=(bias(brief, n),))
        for n in (MEDIUM, SHORT)
    ]
    arrivals = (together(half), together(*two, when=in_prefill("half_done", PIECE)))
    return Schedule("two_into_prefill", arrivals, options=EngineOptions(prefill_step_size=PIECE))


def _compared(brief: Brief) -> list[Schedule]:
    """What the library's sampler draws for rows that share it, with each filter and with all.

    Temperatures are high: unlikely tokens are drawn unless a filter removes them. The largest XTC
    threshold removes none: no two tokens have more than half each.
    """
    low, high = brief.tokens
    nucleus = {"top_p": 0.6, "xtc_probability": 1.0, "xtc_threshold": 0.5}
    share = {"min_p": 1.0, "min_tokens_to_keep": 2}
    least = {"min_p": 0.2}
    special = {"xtc_special_tokens": [*range(low, high, 2)]}
    sometimes = {"xtc_probability": 0.5, "xtc_threshold": 0.02} | special
    chains: dict[str, dict[str, Any]] = {
        "warm": {},
        "nucleus": nucleus,
        "share": share,
        "least": least,
        "likeliest": (likeliest := {"top_k": 7}),
        "without_likely": sometimes,
        "chain": {"top_p": 0.95} | least | sometimes | likeliest | {"xtc_threshold": 0.0},
    }
    rows = [
        text_request(
            brief,
            f"{name}_{row}",
            MEDIUM,
            variant=row,
            max_tokens=LASTING,
            sampler=Sampler("compared", {"temp": 3.0} | filters),
        )
        for name, filters in chains.items()
        for row in range(3)
    ]
    return [
        Schedule(f"drawn_{name}", (together(*rows[3 * place : 3 * place + 3]),))
        for place, name in enumerate(chains)
    ]
