"""A server's own options: limits, defaults of requests, an adapter and a draft model."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from msgspec.structs import replace

from conformance.core.engine import Capability
from conformance.core.engine_options import TWIN, EngineOptions, PrefixCaching
from conformance.core.schedule import Asked, Probe, Request, Schedule
from conformance.core.token_choice import OF_SERVER, RANDOM, Processor, Sampler
from conformance.core.trace import Trace
from conformance.scenarios.build import (
    LONG,
    MEDIUM,
    ONE,
    PIECE,
    SHORT,
    TWO,
    at_once,
    one_by_one,
    produced,
    requests_of,
    text_request,
    together,
)
from conformance.scenarios.scenario import Brief, Scenario, Witness
from conformance.scenarios.served_clients import ANSWER

_ROWS, _PROMPTS = 3, 2
# Prompts that come one after the other, and how many of them may be kept.
_CAME, _KEPT = 6, 2
# Bytes of so many tokens may be kept: two prompts', fewer than came. Those that are served one by
# one are kept in whole blocks of storage.
_TOKENS, _IN_BLOCKS = 80, 600
_HAS_BYTES = "mlx_lm"  # the only library whose server has such an option, and a draft model
# How requests are sampled that do not say it: by the command line, or by the checkpoint.
_SAMPLES: dict[str, dict[str, Any]] = {
    "mlx_lm": {"temp": 4.0, "top_k": 3, "top_p": 0.6, "min_p": 0.2},
    "mlx_vlm": {"temp": 4.0, "top_k": 3},
}
# Its server has a known defect: those who join an answer are sampled as the first one is.
_FIRST_SAMPLER = "mlx_vlm"
_BOUNDS_CONTEXT = "mlx_vlm"  # the only one whose command line has a limit of a request's tokens
BEYOND = "beyond_context"
"""The request of one token more than the context, as an invalid call."""
CONTEXT = LONG + ANSWER
"""The limit of a prompt and its answer, in tokens."""
_NAMES_NO_MODEL = "mlx_lm"  # the only one whose requests may leave the model out


def _options(brief: Brief) -> list[Schedule]:
    found = [_rows(brief), _defaults(brief), *_of_checkpoints(brief)]
    if Capability.PREFIX_CACHING in brief.capabilities:
        found.append(_kept(brief, "kept_number", PrefixCaching(snapshots=_KEPT)))
    if brief.library == _HAS_BYTES:
        for name, tokens in (("kept_bytes", _TOKENS), ("kept_bytes_one_by_one", _IN_BLOCKS)):
            bounded = PrefixCaching(snapshots=4 * _CAME, tokens=tokens)
            # The server answers requests with seeds one by one, by other code.
            found.append(_kept(brief, name, bounded, seeds=tokens == _IN_BLOCKS))
        found += [_drafts(brief), _drafts_of_a_twin(brief)]
    if brief.library == _BOUNDS_CONTEXT:
        found.append(_context(brief))
    if Capability.ADAPTERS in brief.capabilities:
        found.append(_adapter(brief, "adapter_path"))
        if brief.library == _NAMES_NO_MODEL:
            found.append(_adapter(brief, "adapter_path_unnamed", model="default_model"))
    return found


def _rows(brief: Brief) -> Schedule:
    """More requests than rows, and more prompts in pieces than may be computed at once."""
    lengths = (LONG, MEDIUM, LONG + 1, SHORT, MEDIUM + 1, LONG + 2, TWO, SHORT + 1, MEDIUM + 2)
    rows = requests_of(brief, lengths, [ANSWER - at for at in range(len(lengths))])
    options = EngineOptions(
        prefill_step_size=PIECE,
        prefill_batch_size=_PROMPTS,
        completion_batch_size=_ROWS,
        counted=True,
    )
    return at_once("rows", *rows, options=options)


def _defaults(brief: Brief) -> Schedule:
    """Requests that leave out their limit and how they are sampled; some bring their own."""
    sampler, most = None, 2 * ANSWER
    own, sure = dict[str, Any](), dict[str, Any]()
    if (args := _SAMPLES.get(brief.library)) and Capability.SAMPLERS in brief.capabilities:
        sampler = Sampler(RANDOM, args)
        one_left = {"temp": 1.5, "top_k": 1, "top_p": 1.0, "min_p": 0.0}
        own["sampler"] = Sampler("library", one_left)
        sure["sampler"] = Sampler("library", {"temp": 0.0})
    lengths = (MEDIUM, LONG, SHORT, TWO, LONG + 1, SHORT + 1)
    rows = requests_of(brief, lengths, most, sampler=sampler)
    rows.append(text_request(brief, "own", MEDIUM, variant=1, max_tokens=ANSWER, **own))
    # More than the server's own limit, and a temperature that says no less than another.
    rows.append(text_request(brief, "sure", SHORT, variant=2, max_tokens=most + ANSWER, **sure))
    options = EngineOptions(sampler=sampler, max_tokens=most)
    if brief.library == _FIRST_SAMPLER:
        return one_by_one("defaults", rows, options)
    return at_once("defaults", *rows, options=options)


def _of_checkpoints(brief: Brief) -> Iterator[Schedule]:
    """Requests that leave to the checkpoint how they are sampled: within a nucleus, or not at all.

    With other options beside it, a nucleus shows a known defect.
    """
    if brief.library != _FIRST_SAMPLER or Capability.SAMPLERS not in brief.capabilities:
        return
    for name, args in (("nucleus", {"temp": 1.0, "top_p": 0.3}), ("unsampled", {"temp": 0.0})):
        sampler = Sampler(RANDOM if args["temp"] else "library", args)
        rows = requests_of(brief, (MEDIUM, SHORT), ANSWER, sampler=sampler)
        yield one_by_one(f"defaults_{name}", rows, EngineOptions(sampler=sampler))


def _kept(brief: Brief, name: str, caching: PrefixCaching, *, seeds: bool = False) -> Schedule:
    """Prompts with nothing in common, more than may be kept; then the first of them again.

    The first one comes twice in a row. At the end the last but one comes again, and once more after
    another: a full store still has it, as what was used last is let go last.
    """
    sampler = Sampler(OF_SERVER, {"seed": 1}) if seeds else None

    def row(name: str, variant: int) -> Request:
        return text_request(
            brief, name, LONG, variant=variant, max_tokens=ANSWER // 3, sampler=sampler
        )

    rows = [row(f"r{at}", 50 + at) for at in range(_CAME)]
    rows.insert(1, row("first again", 50))
    used = _CAME - 2
    rows += [row("used", 50 + used), row("again", 50), row("used again", 50 + used)]
    return one_by_one(name, rows, EngineOptions(prefix_caching=caching, counted=True))


def _drafts(brief: Brief) -> Schedule:
    """Several clients at once of a server whose answers are drafted by a smaller model."""
    rows = requests_of(brief, (LONG, SHORT, MEDIUM, TWO), ANSWER)
    return at_once("draft_model", *rows, options=EngineOptions(draft_model=1, counted=True))


def _context(brief: Brief) -> Schedule:
    """Requests that the context has just room for; one more token is refused beside them."""
    rows = [
        text_request(brief, f"r{length}", length, max_tokens=CONTEXT - length)
        for length in (SHORT, LONG)
    ]
    return Schedule(
        "context",
        (together(*rows),),
        options=EngineOptions(max_kv_size=CONTEXT),
        probes=tuple(
            Probe(kind, produced(f"r{SHORT}", 1)) for kind in brief.probes if kind == BEYOND
        ),
    )


def _drafts_of_a_twin(brief: Brief) -> Schedule:
    """All drafts are right, so that each moves on what is kept of the drafter and of the history.

    Penalties count the tokens of an answer; of a prompt, a drafter's server counts the last alone
    (mlx_lm/generate.py:532).
    """
    rows = requests_of(brief, {"plain": MEDIUM, "repeated": ONE, "counted": ONE}, ANSWER)
    for at, name in enumerate(("repetition_penalty", "frequency_penalty"), start=1):
        rows[at] = replace(rows[at], processors=(Processor("library", {name: 1.4}),))
    return at_once("drafts_of_a_twin", *rows, options=EngineOptions(draft_model=TWIN, counted=True))


def _adapter(brief: Brief, name: str, **fields: str) -> Schedule:
    """Several clients at once of a server that starts with an adapter, which none of them names."""
    asked = Asked(adapter=1, fields=fields)
    rows = requests_of(brief, (LONG, SHORT, MEDIUM), ANSWER // 2, asked=asked)
    return at_once(name, *rows, options=EngineOptions(adapter=1))


def _full(trace: Trace) -> bool:
    """Whether as many rows decoded at once as may."""
    most = trace.schedule.options.completion_batch_size
    return any(call.batch >= most for step in trace.served for call in step.forwards)


SERVED_OPTIONS = Scenario(
    "served_options",
    345,
    "a server's own options: limits, what requests leave out, an adapter, a draft model",
    frozenset({Capability.SERVED, Capability.SLOTS, Capability.COUNTED, Capability.CHUNKED}),
    _options,
    (Witness("as many rows at once as may be", _full, beside=True).shown_in("rows"),),
)
