"""The input of a run: requests, their arrivals and their removals.

Plain, frozen data, converted to and from JSON (``to_json`` / ``from_json``). Nothing here depends
on a model, an engine or an array library; scenarios make schedules, and the runner runs them.
"""

from __future__ import annotations

import enum
import importlib
import importlib.util
from typing import Any

import msgspec

from conformance.core.engine_options import EngineOptions
from conformance.core.errors import ScheduleError
from conformance.core.token_choice import RANDOM, Processor, Sampler
from conformance.core.user_files import typed_json


class Client(enum.StrEnum):
    """A client of servers; its value is the package that has it, except for ``RAW``."""

    OPENAI = "openai"
    RAW = "raw"  # HTTP/1.1 on a socket, read slowly, as curl does in a pipe
    ANTHROPIC = "anthropic"
    LANGCHAIN = "langchain_openai"

    @property
    def installed(self) -> bool:
        """Whether it can be used here; some are in the extra ``clients``."""
        return self is Client.RAW or importlib.util.find_spec(self.value) is not None

    def load(self) -> None:
        """Import its package; a later import takes no time."""
        if self is not Client.RAW:
            importlib.import_module(self.value)


class Stage(enum.StrEnum):
    """The stage of a request. An engine may omit requests whose stage it does not know."""

    QUEUED = "queued"
    PREFILL = "prefill"
    DECODE = "decode"
    FINISHED = "finished"
    REMOVED = "removed"


class Continuation(msgspec.Struct, frozen=True, omit_defaults=True):
    """The request continues from another request's extracted cache.

    ``after`` is the number of tokens that ``request_id`` had produced when its cache was taken, or
    ``None`` for the cache in its finishing response. With ``saved``, the cache was written to a
    file and loaded again.
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
        span: half-open range of its positions in the prompt, including all tokens that the
            processor adds; ``(0, 0)`` if it has no place in the prompt, as with an encoder.
        twin: it differs from the medium without this mark in its last pixel or sample alone.
        mirrored: it has the pixels or samples of the medium without this mark, the last first.
        tones: 1: an image of two values alone; 2: the same, with values that are 5% higher; 3: the
            same as 1, with the other value in every second column; 4: in all other columns; 5: the
            brightness of 1 in gray; 6: one value alone. 0: any values.
    """

    kind: str
    size: tuple[int, ...]
    content: int = 0
    span: tuple[int, int] = (0, 0)
    twin: bool = False
    mirrored: bool = False
    tones: int = 0


class Asked(msgspec.Struct, frozen=True, omit_defaults=True):
    """How to ask a server.

    Attributes:
        streamed: ask for an answer in pieces, not as a whole.
        chat: ask in a chat, not for the completion of a text.
        endpoint: ask another endpoint: ``messages`` or ``responses``; empty: that of the chat.
        system: number of tokens at the start of the prompt that are the system message.
        blocks: in how many parts the system message is sent; 0: as one text.
        turns: numbers of tokens of the messages before the last, from the user and the assistant in
            turn; none: the prompt is one message. The last one is sent in two parts.
        schema: the answer must be JSON of a schema.
        other: number of another model, to be loaded on request; 0 is the server's own model.
        family: another family, whose model is to be loaded on request; empty: the server's own.
        adapter: number of an adapter, to be loaded on request; 0 is none.
        tools: offer a tool.
        unread: the client asks for pieces but reads none until it disconnects.
        client: the client that sends it.
        follows: the request whose response it goes on from, which the server is to remember; it
            sends only what is new of its prompt. Empty: others go on from it.
        fields: other fields of the API, sent unchanged.
    """

    streamed: bool = True
    chat: bool = True
    endpoint: str = ""
    system: int = 0
    blocks: int = 0
    turns: tuple[int, ...] = ()
    schema: bool = False
    other: int = 0
    family: str = ""
    adapter: int = 0
    tools: bool = False
    unread: bool = False
    client: Client = Client.OPENAI
    follows: str | None = None
    fields: dict[str, Any] = {}


class Budget(msgspec.Struct, frozen=True, omit_defaults=True):
    """A thinking budget: after more than ``tokens`` tokens of thinking, ``forced`` follow.

    There are one or two, one a step. The last of them ends the thinking, also where the model
    chooses it earlier; then the model goes on alone. Thinking begins with the answer, if not
    ``later``, and again with each token ``opened_by``; all of it counts together.
    """

    tokens: int
    forced: tuple[int, ...]
    opened_by: int | None = None
    later: bool = False


class Request(msgspec.Struct, frozen=True, omit_defaults=True):
    """One request.

    ``prompt`` are token ids, including those of ``media``; ``segments`` are the lengths of the
    pieces in which the engine gets the prompt (their sum is the prompt's length); ``stop`` are
    sequences of token ids that end the request. Requests of different ``tenant`` reuse nothing of
    each other. ``asked`` is how to ask a server; ``None``: in a chat, for an answer in pieces.
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
    budget: Budget | None = None

    @property
    def random(self) -> bool:
        """Whether its tokens are drawn with the library's own random numbers."""
        return self.sampler is not None and self.sampler.kind == RANDOM


def own_sampler(request: Request, options: EngineOptions) -> Sampler | None:
    """The sampler to insert ``request`` with; ``None`` if it uses the engine's, or none."""
    return None if request.sampler == options.sampler else request.sampler


def own_processors(request: Request, options: EngineOptions) -> tuple[Processor, ...]:
    """The processors to insert ``request`` with; empty if it uses the engine's, or none."""
    return () if request.processors == options.processors else request.processors


def own_limit(request: Request, options: EngineOptions) -> int | None:
    """The limit to insert ``request`` with; ``None`` if it is the engine's."""
    return None if request.max_tokens == (options.max_tokens or None) else request.max_tokens


def own_stop(request: Request, options: EngineOptions) -> tuple[tuple[int, ...], ...]:
    """The stop sequences to insert ``request`` with; empty if it uses the engine's, or none."""
    return () if request.stop == options.stop else request.stop


class Trigger(msgspec.Struct, frozen=True, omit_defaults=True):
    """A moment defined by a request's progress, so that it is the same for every engine.

    Fires before the first step at whose start ``request_id`` is in ``stage`` and has done at least
    ``count`` units there (prefill: prompt tokens processed; decode: tokens produced; queued and
    finished: no units). With ``None`` as ``request_id``, it fires before step ``count``.
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
    """An invalid call, named like one of the engine's probes; the engine must refuse it."""

    kind: str
    when: Trigger


class Weigh(enum.StrEnum):
    """What is measured in a run besides the model calls: memory, or reads by the host.

    Measuring takes time and extends object lifetimes.
    """

    GRAPH = "graph"  # after each step, the unevaluated graph behind the live caches
    ALIVE = "alive"  # the same, and the arrays and bytes alive outside the caches
    SAMPLED = "sampled"  # the same after every tenth step, for runs of thousands of steps
    KEPT = "kept"  # at the end, the memory of the first request's cache, as it is
    COMPUTED = "computed"  # the same, after evaluating that cache
    STORED = "stored"  # at the end, the memory of the shortest stored sequence, evaluated
    CYCLES = "cycles"  # the schedule is run many times; what is left after each engine is closed
    IDLE = "idle"  # what is left whenever all requests so far have ended
    READS = "reads"  # in each step, the places where the host waits for an array's contents


CYCLES = 30
"""How often a schedule is run, or its requests come again, to find what each time is left."""


class Schedule(msgspec.Struct, frozen=True, omit_defaults=True):
    """Everything that happens in one run of an engine.

    ``name`` is unique within its scenario. With ``decode_on_other_thread``, the runner drives the
    engine on another thread than the one that loaded the model; with ``beside_models``, engines of
    other models decode by turns with it, in the same process. ``weigh`` says what memory or reads
    to measure. ``contracts`` names the counts that have a limit.
    """

    name: str
    arrivals: tuple[Arrival, ...]
    removals: tuple[Removal, ...] = ()
    probes: tuple[Probe, ...] = ()
    options: EngineOptions = EngineOptions()
    decode_on_other_thread: bool = False
    beside_models: bool = False
    weigh: Weigh | None = None
    contracts: tuple[str, ...] = ()

    @property
    def requests(self) -> tuple[Request, ...]:
        """All requests, in the order of their arrival."""
        return tuple(request for arrival in self.arrivals for request in arrival.requests)

    def request(self, request_id: str) -> Request:
        """The request with this id.

        Raises:
            ScheduleError: there is no such request.
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
    """Return ``schedule`` if it can be run.

    Raises:
        ScheduleError: it cannot be run; the message names the request and the field.
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
    """Check one request, independently of the others."""
    if not request.prompt:
        raise ScheduleError(f"{where}: prompt is empty")
    if request.max_tokens < 1:
        raise ScheduleError(f"{where}: max_tokens is {request.max_tokens}, must be at least 1")
    if options.sampler is not None and request.sampler is None:
        raise ScheduleError(f"{where}: it names no sampler, and would get the engine's")
    if options.stop and not request.stop:
        raise ScheduleError(f"{where}: it names no stop sequences, and would get the engine's")
    if options.processors and not request.processors:
        raise ScheduleError(f"{where}: it names no processors, and would get the engine's")
    if request.segments and sum(request.segments) != len(request.prompt):
        raise ScheduleError(
            f"{where}: segments add up to {sum(request.segments)}, "
            f"the prompt has {len(request.prompt)} tokens"
        )
    if request.budget is not None and not 1 <= len(request.budget.forced) <= 2:
        raise ScheduleError(f"{where}: a budget ends with one or two tokens")
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
    """The schedule as JSON text for ``from_json``."""
    return msgspec.json.encode(schedule).decode()


def from_json(text: str | bytes) -> Schedule:
    """Parse and validate a schedule from JSON text.

    Raises:
        ScheduleError: the text is not a schedule; the message names the field and the reason.
    """
    return validate(typed_json(text, Schedule, "not a schedule", ScheduleError))
