"""Helpers to write schedules. Prompts are shared by all scenarios: see ``Brief.prompt``."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import msgspec

from conformance.core.engine_options import EngineOptions
from conformance.core.schedule import (
    Arrival,
    Asked,
    Media,
    Request,
    Schedule,
    Stage,
    Trigger,
)
from conformance.scenarios.scenario import Brief

# Prompt lengths in tokens: one without prefill, then two, short, medium, long.
ONE, TWO, SHORT, MEDIUM, LONG = 1, 2, 5, 11, 23
# Default output tokens of a request, and of a request that others join or leave.
OUTPUT, LASTING = 5, 7
# Names longer than what a hash takes in at once, and than a field of 255 letters.
_ACCOUNT = "https://login.example.com/tenants/" + "0123456789abcdef" * 16 + "/users/"
TENANTS = (_ACCOUNT + "ann", _ACCOUNT + "bob", _ACCOUNT + "Ann", _ACCOUNT[1:] + "ann")
"""Tenants whose names differ at the end, in a capital or at the start alone."""
# Tokens of a prefill piece, if prompts are cut. One size for all scenarios, so that the oracle's
# stream for a prompt in these pieces is made once. Divides none of the lengths above.
PIECE = 4
IN_PIECES = EngineOptions(prefill_step_size=PIECE)
_SEED = 5


def begun_otherwise(
    brief: Brief, prompt: tuple[int, ...], taken: Collection[int]
) -> tuple[int, ...]:
    """The prompt; with another first token if that token is among ``taken``.

    Prompts are random, so two may begin alike by chance, or continue like an output.
    """
    if not prompt or prompt[0] not in taken:
        return prompt
    low, high = brief.tokens
    free = next(t for t in (*range(prompt[0], high), *range(low, high)) if t not in taken)
    return (free, *prompt[1:])


def text_request(
    brief: Brief,
    name: str,
    length: int,
    *,
    variant: int = 0,
    max_tokens: int = OUTPUT,
    **more: Any,
) -> Request:
    """A request named ``name`` with the shared prompt of this length and variant.

    If every request of the family must hold a medium, one is added, with the variant as content.
    """
    prompt = brief.prompt(length, variant)
    if not brief.required:
        return Request(name, prompt, max_tokens, **more)
    medium = Media(brief.required, brief.sizes[brief.required][0], variant)
    prompt, media = brief.compose([medium, prompt])
    return Request(name, prompt, max_tokens, media=media, **more)


def seeded(request: Request) -> Request:
    """The same request with a seed, which changes nothing where no token is drawn.

    Some servers answer requests with seeds one by one, by other code.
    """
    asked = request.asked or Asked()
    fields = asked.fields | {"seed": _SEED}
    return msgspec.structs.replace(request, asked=msgspec.structs.replace(asked, fields=fields))


def media_request(
    brief: Brief,
    name: str,
    kind: str,
    *,
    size: int = 0,
    content: int = 0,
    count: int = 1,
    before: int = 3,
    after: int = SHORT,
    max_tokens: int = OUTPUT,
    **more: Any,
) -> Request:
    """A request named ``name`` with ``count`` media of this kind between two pieces of text.

    ``size`` is the index of the first medium's size in the family's sizes; each further medium has
    the next size and content. With a single size all media have that size.
    """
    sizes = brief.sizes[kind]
    parts: list[tuple[int, ...] | Media] = [brief.prompt(before, content)] if before else []
    for index in range(count):
        if index:
            parts.append(brief.prompt(1, index))
        parts.append(Media(kind, sizes[(size + index) % len(sizes)], content + index))
    if after:
        parts.append(brief.prompt(after, content))
    prompt, media = brief.compose(parts)
    return Request(name, prompt, max_tokens, media=media, **more)


def together(*requests: Request, when: Trigger | None = None) -> Arrival:
    """The requests, inserted in one call; by default before the first step."""
    return Arrival(requests, when or Trigger())


def produced(request_id: str, count: int) -> Trigger:
    """When that request has produced ``count`` tokens and is still decoding."""
    return Trigger(request_id, Stage.DECODE, count)


def in_prefill(request_id: str, tokens: int) -> Trigger:
    """When ``tokens`` of that request's prompt have been processed, and it is still in prefill."""
    return Trigger(request_id, Stage.PREFILL, tokens)


def queued(request_id: str) -> Trigger:
    """When that request waits in the queue."""
    return Trigger(request_id, Stage.QUEUED)


def gone(request_id: str, *, removed: bool = False) -> Trigger:
    """When that request has finished, or has been removed."""
    return Trigger(request_id, Stage.REMOVED if removed else Stage.FINISHED)


def at_once(name: str, *requests: Request, **more: Any) -> Schedule:
    """A schedule whose requests are all inserted in one call before the first step.

    Args:
        more: the schedule's other fields.
    """
    return Schedule(name, (together(*requests),), **more)


def requests_of(
    brief: Brief,
    lengths: Iterable[int] | Mapping[str, int],
    outputs: int | Iterable[int] = OUTPUT,
    **more: Any,
) -> list[Request]:
    """Requests with the shared prompts of these lengths; no two prompts are equal.

    Args:
        lengths: by the requests' names; without names, a request is named ``r`` and its length.
        outputs: the output tokens of all requests, or of each.
        more: what all have in common, as in ``text_request``.
    """
    named = lengths if isinstance(lengths, Mapping) else {f"r{n}": n for n in lengths}
    most = [outputs] * len(named) if isinstance(outputs, int) else outputs
    before: Counter[int] = Counter()
    requests = []
    for (name, length), out in zip(named.items(), most, strict=True):
        variant = before[length]
        requests.append(text_request(brief, name, length, variant=variant, max_tokens=out, **more))
        before[length] += 1
    return requests


def unlike(
    name: str, prompt: tuple[int, ...], *others: Request, brief: Brief, max_tokens: int = 2
) -> Request:
    """A request whose prompt begins differently from all others."""
    begun = begun_otherwise(brief, prompt, [other.prompt[0] for other in others])
    return Request(name, begun, max_tokens)


def one_by_one(
    name: str, requests: Sequence[Request], options: EngineOptions | None = None
) -> Schedule:
    """Each request arrives when the one before it has finished."""
    later = [
        together(request, when=gone(before.request_id))
        for before, request in itertools.pairwise(requests)
    ]
    arrivals = (together(requests[0]), *later)
    # Options that are not given are left out of the schedule's JSON, too.
    return Schedule(name, arrivals, options=options) if options else Schedule(name, arrivals)
