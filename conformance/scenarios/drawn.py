"""Random schedules over all features, built from ``Choices``.

The search for false alarms uses random numbers; exploring uses Hypothesis. Prompts are shared with
the ladder, so that one stream of the oracle serves many schedules.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from conformance.core.engine import Capability
from conformance.core.engine_options import (
    KV_GROUPS,
    Drafting,
    EngineOptions,
    KvQuant,
    PrefixCaching,
)
from conformance.core.schedule import Arrival, Continuation, Removal, Request, Schedule, Trigger
from conformance.core.token_choice import Processor, Sampler
from conformance.scenarios.build import (
    LONG,
    PIECE,
    gone,
    in_prefill,
    media_request,
    produced,
    queued,
    text_request,
)
from conformance.scenarios.choices import Choices
from conformance.scenarios.features import GRAMMAR, Feature
from conformance.scenarios.scenario import Brief

_STATES = 11  # of a grammar
_BLOCK = 4  # tokens of a kept block, and of a draft
_RIGHT = (3, 0, 2, 1)


@dataclass(frozen=True)
class Space:
    """The largest schedules to make.

    Attributes:
        requests: the most requests.
        tokens: the most output tokens of a request.
        lengths: lengths of prompts, the shortest first.
        variants: prompts of each length.
        latest: the most steps between successive arrivals.
    """

    requests: int = 3
    tokens: int = 3
    lengths: tuple[int, ...] = (1, 2, 3, 5, 11)
    variants: int = 2
    latest: int = 3


def draw_schedule(
    choices: Choices, brief: Brief, features: Collection[Feature], space: Space, *, name: str
) -> Schedule:
    """A schedule with some of ``features`` and no others."""
    options = draw_options(choices, brief, features)
    requests: list[Request] = []
    for number in range(choices.integer(1, space.requests)):
        request = draw_request(choices, brief, features, space, name=f"r{number}", options=options)
        requests.append(_continued(choices, features, request, requests))
    arrivals = tuple(_arrivals(choices, requests, features, space.latest))
    removals = tuple(_removals(choices, requests)) if Feature.REMOVALS in features else ()
    thread = Feature.THREAD in features and choices.flag()
    return Schedule(name, arrivals, removals, options=options, decode_on_other_thread=thread)


def draw_options(choices: Choices, brief: Brief, features: Collection[Feature]) -> EngineOptions:
    """The engine's options that ``features`` allow."""
    more: dict[str, Any] = {}
    if Feature.PIECES in features:
        more["prefill_step_size"] = PIECE
    if Feature.SLOTS in features:
        # Not fewer rows than are prefilled at once: mlx-vlm then admits no request
        # (mlx_vlm/generate/ar.py:3119), which would hide all other defects.
        more["completion_batch_size"] = slots = choices.integer(1, 3)
        more["prefill_batch_size"] = choices.integer(1, min(slots, 2))
    if Feature.QUANTIZED in features and (kinds := quantizations(brief)):
        more["kv"] = choices.pick(kinds)
    if Feature.DRAFTS in features:
        kind = choices.pick(brief.drafters)
        more["drafting"] = Drafting(kind, _BLOCK, choices.pick((_RIGHT, (_BLOCK,), ())))
        slots = more.get("completion_batch_size", 8)
        more["prefill_batch_size"] = more["completion_batch_size"] = slots
    if Feature.CACHING in features:
        room = choices.pick(({}, {"blocks": 6, "snapshots": 1}))
        caching = PrefixCaching(block_size=_BLOCK, interval=_BLOCK)
        more["prefix_caching"] = msgspec.structs.replace(caching, **room)
    if Feature.BOUNDED in features:
        more["max_kv_size"] = 8
    return EngineOptions(**more)


def quantizations(brief: Brief) -> tuple[KvQuant, ...]:
    """The ways in which the family's keys and values can be quantized."""
    sizes = brief.heads()
    groups = [group for group in KV_GROUPS if sizes and not any(size % group for size in sizes)]
    kinds = [KvQuant(bits, group_size=group) for group in groups[:1] for bits in (8, 4)]
    if sizes and "turboquant" in brief.schemes:
        kinds.append(KvQuant(3.5, scheme="turboquant"))
    return (*kinds, *(KvQuant(k.bits, k.group_size, k.scheme, 8) for k in kinds[-1:]))


def draw_request(
    choices: Choices,
    brief: Brief,
    features: Collection[Feature],
    space: Space,
    *,
    name: str,
    options: EngineOptions,
) -> Request:
    """A request with some of ``features``."""
    more: dict[str, Any] = {"max_tokens": choices.integer(1, space.tokens)}
    if Feature.LONG in features and brief.window and choices.flag():
        more["max_tokens"] = brief.window + 2
    more |= draw_choosing(choices, features)
    request = _prompted(choices, brief, features, space, name=name, more=more)
    request = in_segments(choices, features, request)
    if Feature.STOP in features and request.max_tokens > 1 and choices.flag():
        try:
            tokens = brief.solo(request, options).tokens
        except Exception:  # noqa: BLE001 - a single-stream failure is reported when the schedule is played
            return request
        at = choices.integer(0, len(tokens) - 1)
        stop = (tokens[at : at + 2],)
        request = msgspec.structs.replace(request, stop=stop)
    return request


def draw_choosing(choices: Choices, features: Collection[Feature]) -> dict[str, Any]:
    """A request's own sampler and processors, by field; often none."""
    own: dict[str, Any] = {}
    if Feature.SAMPLERS in features and choices.flag():
        own["sampler"] = choices.pick(_SAMPLERS)
    if Feature.PROCESSORS in features and choices.flag():
        own["processors"] = (choices.pick(_PENALTIES),)
    if Feature.GRAMMAR in features and choices.flag():
        own["processors"] = (choices.pick(_GRAMMARS),)
    return own


def in_segments(choices: Choices, features: Collection[Feature], request: Request) -> Request:
    """The request, often with its prompt in two segments."""
    if Feature.SEGMENTS not in features or len(request.prompt) < 2 or not choices.flag():
        return request
    cut = choices.integer(1, len(request.prompt) - 1)
    return msgspec.structs.replace(request, segments=(cut, len(request.prompt) - cut))


_SAMPLERS = (
    *(Sampler("seeded", {"temperature": 0.8, "seed": seed}) for seed in (1, 2)),
    Sampler("library", {"temp": 0.7, "top_p": 0.01}),
    Sampler("library", {"temp": 0.7, "xtc_probability": 1.0, "xtc_threshold": 0.05, "top_k": 1}),
)
_PENALTIES = (
    Processor("library", {"repetition_penalty": 1.3, "repetition_context_size": 8}),
    Processor("library", {"frequency_penalty": 0.7, "presence_penalty": 0.3}),
)
_GRAMMARS = tuple(Processor(GRAMMAR, {"seed": seed, "states": _STATES}) for seed in (101, 102))


def _prompted(
    choices: Choices,
    brief: Brief,
    features: Collection[Feature],
    space: Space,
    *,
    name: str,
    more: dict[str, Any],
) -> Request:
    """A request with its own prompt, with a prefix shared by others, or with a medium."""
    if Feature.MEDIA in features and choices.flag():
        return draw_medium(choices, brief, name, **more)
    if Feature.CACHING in features and choices.flag():
        shared = choices.pick((LONG, 4 * _BLOCK, 4 * _BLOCK + 2))
        own = brief.prompt(5, variant=7) if shared < LONG or choices.flag() else ()
        cut = Capability.SEGMENTS in brief.capabilities and "processors" not in more
        if cut and choices.flag():
            # Engines that keep whole sequences keep them up to where prompts are cut.
            more["segments"] = (4 * _BLOCK - 1, shared + len(own) - 4 * _BLOCK + 1)
        return Request(name, brief.prompt(LONG)[:shared] + own, **more)
    lengths = space.lengths
    if Feature.LONG in features and brief.window:
        window = brief.window
        lengths = (*lengths, window - 1, window, window + 1, 2 * window + 3)
    length, variant = choices.pick(lengths), choices.integer(0, space.variants - 1)
    return text_request(brief, name, length, variant=variant, **more)


def draw_medium(choices: Choices, brief: Brief, name: str, **more: Any) -> Request:
    """A request with one medium or two between texts."""
    kind = choices.pick([kind for kind in brief.modalities if kind != "text"])
    before, after = (3, 0) if brief.media_last else choices.pick(((0, 5), (3, 5)))
    count = 1 if kind in brief.single else choices.integer(1, 2)
    size, content = choices.integer(0, 1), choices.integer(0, 1)
    return media_request(
        brief, name, kind, size=size, content=content, count=count, before=before, after=after,
        **more,
    )  # fmt: skip


def _continued(
    choices: Choices, features: Collection[Feature], request: Request, before: Sequence[Request]
) -> Request:
    """``request``, continuing from the cache of one ``before`` it, or unchanged."""
    sources = [r for r in before if r.continues is None and not r.media]
    if Feature.CONTINUES not in features or not sources or request.media or not choices.flag():
        return request
    source = choices.pick(sources)
    after = choices.integer(0, source.max_tokens - 1) or None
    own = {"stop": (), "segments": ()}  # its stops would match another stream
    going_on = Continuation(source.request_id, after)
    return msgspec.structs.replace(request, continues=going_on, **own)


def _arrivals(
    choices: Choices, requests: Sequence[Request], features: Collection[Feature], latest: int
) -> Iterator[Arrival]:
    left = [request for request in requests if request.continues is None]
    when, step = Trigger(), 0
    while left:
        late = Feature.ARRIVALS in features or Feature.CACHING in features
        count = choices.integer(1, len(left)) if late else len(left)
        yield Arrival(tuple(left[:count]), when)
        # A kept prefix exists once the request that computed it has ended.
        before, left = left[0], left[count:]
        step += choices.integer(0, latest)
        ended = Feature.CACHING in features and choices.flag()
        when = gone(before.request_id) if ended else Trigger(count=step)
    for request in requests:
        if request.continues is not None:
            name, after = request.continues.request_id, request.continues.after
            when = gone(name) if after is None else produced(name, after)
            yield Arrival((request,), when)


def _removals(choices: Choices, requests: Sequence[Request]) -> Iterator[Removal]:
    """Removals of some requests, in the queue, in prefill or in decode; some may come too late."""
    for request in requests:
        if choices.flag():
            name = request.request_id
            when = (queued(name), in_prefill(name, 1), produced(name, 1), produced(name, 2))
            yield Removal((name,), choices.pick(when))
