"""Short ways to write schedules. Prompts are shared by all scenarios: see ``Brief.prompt``."""

from __future__ import annotations

from typing import Any

from conformance.core.schedule import Arrival, Media, Request, Stage, Trigger
from conformance.scenarios.base import Brief

# Prompt lengths, in tokens: one that the engine never prefills, short, medium, long.
ONE, TWO, SHORT, MEDIUM, LONG = 1, 2, 5, 11, 23
# Output tokens of a request that says nothing else, and of one that others join or leave.
OUTPUT, LASTING = 5, 7
# Tokens of a prefill piece where prompts are cut. One size for all scenarios: the oracle's stream
# for a prompt in these pieces is then made once. Divides no prompt's length but its own multiples.
PIECE = 4


def ask(
    brief: Brief,
    name: str,
    length: int,
    *,
    variant: int = 0,
    max_tokens: int = OUTPUT,
    **more: Any,
) -> Request:
    """A request called ``name`` with the shared prompt of that length and variant.

    Families of which every request must hold a medium get one, its content by the variant.
    """
    prompt = brief.prompt(length, variant)
    if not brief.required:
        return Request(name, prompt, max_tokens, **more)
    medium = Media(brief.required, brief.sizes[brief.required][0], variant)
    prompt, media = brief.compose([medium, prompt])
    return Request(name, prompt, max_tokens, media=media, **more)


def show(
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
    """A request called ``name`` with ``count`` media of that kind between two pieces of text.

    ``size`` says which of the family's sizes the first has; each further one has the next size and
    content. Families of one size give each of them that size.
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
    """The requests in one call of insert; before the first step, if nothing else is said."""
    return Arrival(requests, when or Trigger())


def produced(request_id: str, count: int) -> Trigger:
    """When that request has produced ``count`` tokens and decodes on."""
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
