"""The input of a run: requests, when they arrive, when they are removed.

Plain data, frozen, JSON both ways (``to_json`` / ``from_json``). Nothing here depends on a
model, an engine or an array library; a scenario makes schedules, the runner plays them.
"""

from __future__ import annotations

import enum
from typing import Any

import msgspec

from conformance.core.engine_options import EngineOptions
from conformance.core.errors import ScheduleError
from conformance.core.token_choice import Processor, Sampler
from conformance.core.user_files import typed_json


class Stage(enum.StrEnum):
    """The stage a request is in. An engine may leave out requests whose stage it does not know."""

    QUEUED = "queued"
    PREFILL = "prefill"
    DECODE = "decode"
    FINISHED = "finished"
    REMOVED = "removed"


class Continuation(msgspec.Struct, frozen=True, omit_defaults=True):
    """The request goes on from another request's extracted cache.

    ``after`` is the number of tokens that ``request_id`` had produced when its cache was taken, or
    ``None`` for the cache that its finishing response carried. With ``saved`` that cache was
    written to a file and loaded from it.
    """

    request_id: str
    after: int | None = None
    saved: bool = False


class Media(msgspec.Struct, frozen=True, omit_defaults=True):
    """An image, a video or a sound in a prompt, described by the data it is generated from.

    Attributes:
        kind: ``image``, ``video`` or ``audio``.
        size: image: width, height (pixels); video: frames, width, height; audio: samples.
        content: media of equal size but different content have different pixels or samples.
        span: its half-open range of positions in the prompt, including all tokens that the
            processor adds; ``(0, 0)`` if it has no place there, as with an encoder.
    """

    kind: str
    size: tuple[int, ...]
    content: int = 0
    span: tuple[int, int] = (0, 0)


class Asked(msgspec.Struct, frozen=True, omit_defaults=True):
    """How a server is asked.

    Attributes:
        streamed: for an answer in pieces, not in one; ``chat``: in a chat, not to complete a text.
        system: so many tokens of the prompt, its first, are the system message.
        schema: the answer must be JSON of a schema.
        other: the number of another model, to be loaded on request; 0 is the server's own.
        adapter: the number of an adapter, to be loaded on request; 0 is none.
        tools: a tool is offered.
        unread: the client reads nothing of its answer, in pieces, until it goes away.
        fields: others of the API, which it has as they are.
    """

    streamed: bool = True
    chat: bool = True
    system: int = 0
    schema: bool = False
    other: int = 0
    adapter: int = 0
    tools: bool = False
    unread: bool = False
    fields: dict[str, Any] = {}


class Request(msgspec.Struct, frozen=True, omit_defaults=True):
    """One request.

    ``prompt`` are token ids, including those of ``media``; ``segments`` are the lengths into which
    the prompt is cut for the engine (their sum is the prompt's length); ``stop`` are sequences of
    token ids that end the request. Nothing is reused between requests of other ``tenant``.
    ``asked`` is how a server is asked; ``None``: for pieces, in a chat.
    """

    request_id: str
    prompt: tuple[int, ...]
    max_tokens: int
    sampler: Sampler | None = None
    processors: tuple[Processor, ...] = ()
    stop: tuple[tuple[int, ...], ...] = ()
    segments: tuple[int, ...] = ()
    continues: Continuation | None = None
    media: tuple[Media, ...] = ()
    tenant: str = ""
    asked: Asked | None = None


def own_sampler(request: Request, options: EngineOptions) -> Sampler | None:
    """The sampler to insert ``request`` with; ``None`` where it has the engine's, or none."""
    return None if request.sampler == options.sampler else request.sampler


def own_processors(request: Request, options: EngineOptions) -> tuple[Processor, ...]:
    """The processors to insert ``request`` with; none where it has the engine's, or none."""
    return () if request.processors == options.processors else request.processors


class Trigger(msgspec.Struct, frozen=True, omit_defaults=True):
    """A moment, defined by a request's progress, so that it means the same on every engine.

    Fires before the first step at whose start ``request_id`` is in ``stage`` and has done at least
    ``count`` units there (prefill: prompt tokens processed; decode: tokens produced; queued and
    finished: nothing is counted). ``None`` as ``request_id`` fires before step ``count``.
    """

    request_id: str | None = None
    stage: Stage = Stage.DECODE
    count: int = 0


class Arrival(msgspec.Struct, frozen=True, omit_defaults=True):
    """Requests that are inserted together, in one call."""

    requests: tuple[Request, ...]
    when: Trigger = Trigger()


class Removal(msgspec.Struct, frozen=True, omit_defaults=True):
    """Requests that are cancelled together, in one call."""

    request_ids: tuple[str, ...]
    when: Trigger


class Probe(msgspec.Struct, frozen=True):
    """An invalid call, named as one of the engine's probes; the engine must refuse it."""

    kind: str
    when: Trigger


class Weigh(enum.StrEnum):
    """What of a run is measured beside its calls: memory, or reads of the host.

    Measuring takes time and extends lifetimes.
    """

    GRAPH = "graph"  # after each step, the unevaluated graph behind the live caches
    ALIVE = "alive"  # the same, and the arrays and bytes that live beside the caches
    SAMPLED = "sampled"  # the same after each tenth step, for runs of thousands
    KEPT = "kept"  # at the end, the memory of the first request's cache, as it is
    COMPUTED = "computed"  # the same, after evaluating that cache
    STORED = "stored"  # at the end, that of the shortest sequence which is stored, evaluated
    READS = "reads"  # in each step, where the host waits for an array's contents


class Schedule(msgspec.Struct, frozen=True, omit_defaults=True):
    """All that happens in one run of an engine.

    ``name`` is unique within its scenario. ``decode_on_other_thread`` makes the runner
    drive the engine on another thread than the one that loaded the model; ``weigh`` makes it
    measure memory or reads. ``contracts`` names what is counted, and has a limit.
    """

    name: str
    arrivals: tuple[Arrival, ...]
    removals: tuple[Removal, ...] = ()
    probes: tuple[Probe, ...] = ()
    options: EngineOptions = EngineOptions()
    decode_on_other_thread: bool = False
    weigh: Weigh | None = None
    contracts: tuple[str, ...] = ()

    @property
    def requests(self) -> tuple[Request, ...]:
        """All requests, in the order of their arrival."""
        return tuple(request for arrival in self.arrivals for request in arrival.requests)

    def request(self, request_id: str) -> Request:
        """The request of that id.

        Raises:
            ScheduleError: no request has it.
        """
        for request in self.requests:
            if request.request_id == request_id:
                return request
        raise ScheduleError(f"schedule {self.name!r} has no request {request_id!r}")

    @property
    def removed_ids(self) -> frozenset[str]:
        """The requests that are removed at some point."""
        return frozenset(name for removal in self.removals for name in removal.request_ids)


def validate(schedule: Schedule) -> Schedule:
    """Return ``schedule`` if it can be played.

    Raises:
        ScheduleError: names the request and the field that make it unplayable.
    """
    seen: set[str] = set()
    for request in schedule.requests:
        where = f"schedule {schedule.name!r}, request {request.request_id!r}"
        if request.request_id in seen:
            raise ScheduleError(f"{where}: the id is used twice")
        seen.add(request.request_id)
        _check(request, schedule.options, where)
        if request.continues and request.continues.request_id not in seen:
            raise ScheduleError(
                f"{where}: continues {request.continues.request_id!r}, which arrives no earlier"
            )
    for name in schedule.removed_ids:
        if name not in seen:
            raise ScheduleError(f"schedule {schedule.name!r}: removal of unknown request {name!r}")
    for trigger in triggers(schedule):
        if trigger.request_id is not None and trigger.request_id not in seen:
            raise ScheduleError(
                f"schedule {schedule.name!r}: trigger on unknown request {trigger.request_id!r}"
            )
    return schedule


def _check(request: Request, options: EngineOptions, where: str) -> None:
    """What of a request must hold whatever the others are."""
    if not request.prompt:
        raise ScheduleError(f"{where}: prompt is empty")
    if request.max_tokens < 1:
        raise ScheduleError(f"{where}: max_tokens is {request.max_tokens}, must be at least 1")
    if options.sampler is not None and request.sampler is None:
        raise ScheduleError(f"{where}: it names no sampler, and would get the engine's")
    if options.processors and not request.processors:
        raise ScheduleError(f"{where}: it names no processors, and would get the engine's")
    if request.segments and sum(request.segments) != len(request.prompt):
        raise ScheduleError(
            f"{where}: segments add up to {sum(request.segments)}, "
            f"the prompt has {len(request.prompt)} tokens"
        )
    for media in request.media:
        placed = 0 <= media.span[0] < media.span[1] <= len(request.prompt)
        if not placed and media.span != (0, 0):
            raise ScheduleError(
                f"{where}: {media.kind} has span {media.span}, "
                f"no place in a prompt of {len(request.prompt)} tokens"
            )


def triggers(schedule: Schedule) -> tuple[Trigger, ...]:
    """All triggers of a schedule: of its arrivals, removals and probes."""
    timed: tuple[Arrival | Removal | Probe, ...] = (
        *schedule.arrivals,
        *schedule.removals,
        *schedule.probes,
    )
    return tuple(item.when for item in timed)


def to_json(schedule: Schedule) -> str:
    """The schedule as JSON text that ``from_json`` reads back."""
    return msgspec.json.encode(schedule).decode()


def from_json(text: str | bytes) -> Schedule:
    """A validated schedule from JSON text.

    Raises:
        ScheduleError: the text is not a schedule; names the field and the reason.
    """
    return validate(typed_json(text, Schedule, "not a schedule", ScheduleError))
