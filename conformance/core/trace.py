"""The recording of a run: everything that the checks need, so that they need no model.

Arrays are NumPy float32. Nothing here depends on mlx or pytest.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from conformance.core.counted import Counted
from conformance.core.phases import ForwardCall, ServedStep
from conformance.core.pooled import Pooled, Stored
from conformance.core.schedule import Schedule, Stage


class FinishReason(enum.StrEnum):
    """Why a request ended."""

    LENGTH = "length"
    STOP = "stop"


class Mode(enum.StrEnum):
    """``FORCED``: each row is fed the oracle's tokens. ``FREE``: the engine chooses."""

    FORCED = "forced"
    FREE = "free"


@dataclass(frozen=True)
class Stream:
    """The output of one request, from single-stream decoding or from a batch.

    Attributes:
        tokens: the token ids produced, in order.
        logprobs: float32 ``[len(tokens), vocab]``, the distributions the tokens were chosen from;
            ``None`` if the engine does not return them.
        token_logprobs: float32 ``[len(tokens)]``, the logprobs of the chosen tokens.
        finish_reason: ``None`` if the request was removed or the run ended first.
    """

    tokens: tuple[int, ...]
    logprobs: np.ndarray | None
    token_logprobs: np.ndarray | None = None
    finish_reason: FinishReason | None = None


@dataclass(frozen=True)
class TokenEvent:
    """One token that an engine produced."""

    request_id: str
    token: int
    logprobs: np.ndarray | None = None
    token_logprob: float | None = None
    finish_reason: FinishReason | None = None


@dataclass(frozen=True)
class Claim:
    """A statement of an engine about its work, besides tokens, and the measured fact.

    Attributes:
        what: the kind of statement: counted, weighed or drawn.
        holds: whether statement and fact agree.
        cause: the likely cause if they don't.
        sentence: what is found if they don't; empty: that there are ``found``.
        failed: whether it is about work that failed: no answer, half of one, or an exception.
        drift: whether it is about what tokens are chosen by, which is off if they don't.
        dtype: the dtype of a row's logits that were given to logits processors, if it is about it.
    """

    what: str
    said: str
    found: str
    holds: bool
    cause: str = "what the engine reports is not computed from what it does"
    sentence: str = ""
    failed: bool = False
    drift: bool = False
    dtype: str = ""

    def where(self, step: int) -> str:
        """What is found at a step if they don't agree."""
        return self.sentence or f"{self.what}, step {step}: {self.said}, and there are {self.found}"


def unused(uid: int, uids: Container[int]) -> Claim:
    """An engine's claim that the uid of a new request is none of the ``uids`` given before."""
    had = int(uid in uids)
    return Claim("earlier requests with the uid of a new one", "0", str(had), not had)


def own_logprob(event: TokenEvent) -> Claim:
    """An engine's claim that the logprob of an event's token is the one of its distribution.

    The event has both.
    """
    assert event.logprobs is not None
    said, found = np.float32(event.token_logprob or 0.0), event.logprobs[event.token]
    holds = bool(np.array_equal(said, found, equal_nan=True))
    return Claim("the logprob of a token, unlike in its distribution", str(said), str(found), holds)


@dataclass(frozen=True)
class StepOutput:
    """The return value of an engine's ``step``.

    Attributes:
        events: the tokens produced.
        processed: for each request, the number of its prompt tokens processed in this step.
        reused: for each request that left the queue, the number of prompt tokens not processed
            because their cache was kept from an earlier request.
        drafted: for each request, the number of tokens drafted and then verified in this step.
        proposed: for each of these requests, the drafter's own tokens, if recorded; others may have
            been verified instead.
        stored: calls of the sequence store since the previous step, if known.
        claims: the engine's statements since the previous step, if measured.
        pooled: calls of the prefix pool since the previous step, if known.
        served: steps of a server's own generator since the previous step, if recorded.
        left_over: additional bytes of arrays in an idle server, if recorded.
    """

    events: tuple[TokenEvent, ...] = ()
    processed: Mapping[str, int] = field(default_factory=dict)
    reused: Mapping[str, int] = field(default_factory=dict)
    drafted: Mapping[str, int] = field(default_factory=dict)
    proposed: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    stored: tuple[Stored, ...] = ()
    claims: tuple[Claim, ...] = ()
    pooled: tuple[Pooled, ...] = ()
    served: tuple[ServedStep, ...] = ()
    left_over: int | None = None


@dataclass(frozen=True)
class ProbeResult:
    """An invalid call and the engine's reaction.

    Attributes:
        kind: the engine's probe that made the call.
        error: ``"TypeName: text"`` of the exception; ``None`` if the call was accepted.
        changed: what the call changed in the engine's state; empty if nothing.
    """

    kind: str
    error: str | None
    changed: tuple[str, ...] = ()


@dataclass(frozen=True)
class CachedLayer:
    """One layer's cache of the decoding rows.

    Attributes:
        nbytes: its size in bytes.
        quantized: whether it is quantized.
        dtypes: dtypes of its floating-point arrays, sorted; empty if it has none or they are
            unknown.
    """

    nbytes: int
    quantized: bool
    dtypes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Alive:
    """Objects that are alive after a step.

    Attributes:
        arrays: the number of array objects made since the run began, including those of caches.
        nbytes: bytes of arrays, except those in live caches.
    """

    arrays: int
    nbytes: int


@dataclass(frozen=True)
class KeptLayer:
    """One layer of a kept cache; bytes as in ``KeptCache``.

    Attributes:
        place: its index, such as ``3`` or, within a list of caches, ``3.0``.
        arrays: the number of its arrays.
    """

    place: str
    counted: int
    held: int
    arrays: int


@dataclass(frozen=True)
class KeptCache:
    """The cache of an ended request: the bytes it reports, and the bytes freed with it.

    ``layers`` has the same for each of its layers, freed one after the other.
    """

    request_id: str
    counted: int
    held: int
    layers: tuple[KeptLayer, ...] = ()


@dataclass(frozen=True)
class Step:
    """One step of a run.

    Attributes:
        index: counts from zero.
        stages: each request's stage at the start of the step, after arrivals and removals.
        output: the engine's return value.
        forwards: the model calls of the step.
        cache_bytes: bytes of live caches after the step; ``None`` if unknown.
        probes: invalid calls made before the step.
        removed_from: the stage of each request that was removed before the step.
        rows: the batch row of each request that was decoding at the start, where known.
        layers: each layer's cache of the decoding rows after the step, where known.
        pending: edges of the unevaluated graph behind the live caches after the step; ``None`` if
            the schedule does not request it or the engine does not know it.
        alive: objects alive after the step; ``None`` if the schedule does not request it.
        reads: where the host read arrays in the step, once for each read, except reads by the
            adapter; ``None`` if the schedule does not request it.
    """

    index: int
    stages: Mapping[str, Stage]
    output: StepOutput
    forwards: tuple[ForwardCall, ...] = ()
    cache_bytes: int | None = None
    probes: tuple[ProbeResult, ...] = ()
    removed_from: Mapping[str, Stage] = field(default_factory=dict)
    rows: Mapping[str, int] = field(default_factory=dict)
    layers: tuple[CachedLayer, ...] = ()
    pending: int | None = None
    alive: Alive | None = None
    reads: tuple[str, ...] | None = None

    def in_stage(self, stage: Stage) -> tuple[str, ...]:
        """The requests that were in ``stage`` when the step began."""
        return tuple(name for name, where in self.stages.items() if where is stage)


@dataclass(frozen=True)
class Failure:
    """An exception raised by the engine: type, text and the last frame inside the library."""

    type_name: str
    message: str
    frame: str
    doing: str
    unsupported: bool = False

    def __str__(self) -> str:
        return f"{self.type_name}: {self.message} [{self.frame}, in {self.doing}]"


@dataclass(frozen=True)
class Trace:
    """A whole run.

    Attributes:
        schedule: the schedule that was run.
        mode: forced or free.
        steps: all steps, in order.
        failure: the exception that ended the run, if any.
        out_of_steps: the step limit was reached with unfinished requests.
        cache_bytes_at_end: bytes of caches still held after the last request ended.
        missed: descriptions of the triggers that never fired.
        kept: memory of the first request's cache at the end, if the schedule requests it.
        counted: the engine's own statistics, if it keeps any.
        left: counts of what was alive, by kind, after each cycle of requests, if the schedule
            requests it.
    """

    schedule: Schedule
    mode: Mode
    steps: tuple[Step, ...]
    failure: Failure | None = None
    out_of_steps: bool = False
    cache_bytes_at_end: int | None = None
    missed: tuple[str, ...] = ()
    kept: KeptCache | None = None
    counted: Counted | None = None
    left: tuple[Mapping[str, int], ...] = ()

    def events(self, request_id: str) -> tuple[TokenEvent, ...]:
        """All events of one request, in order."""
        return self._events.get(request_id, ())

    def stream(self, request_id: str) -> Stream:
        """The events of one request as a stream, with ``logprobs`` if every event has them."""
        return self._streams.get(request_id) or Stream((), None)

    @cached_property
    def _events(self) -> dict[str, tuple[TokenEvent, ...]]:
        found: dict[str, list[TokenEvent]] = {}
        for step in self.steps:
            for event in step.output.events:
                found.setdefault(event.request_id, []).append(event)
        return {name: tuple(events) for name, events in found.items()}

    @cached_property
    def _streams(self) -> dict[str, Stream]:
        return {name: _stream(events) for name, events in self._events.items()}

    @property
    def forwards(self) -> tuple[ForwardCall, ...]:
        """All model calls of the run."""
        return tuple(call for step in self.steps for call in step.forwards)

    @property
    def served(self) -> tuple[ServedStep, ...]:
        """The steps of a server's own generator; empty if nothing recorded them."""
        return tuple(own for step in self.steps for own in step.output.served)

    @property
    def computed(self) -> tuple[ForwardCall, ...]:
        """All model calls of the run, in this process or in a server's."""
        return self.forwards or tuple(call for step in self.served for call in step.forwards)


def _stream(events: tuple[TokenEvent, ...]) -> Stream:
    rows = [event.logprobs for event in events if event.logprobs is not None]
    chosen = [event.token_logprob for event in events if event.token_logprob is not None]
    reasons = [event.finish_reason for event in events if event.finish_reason]
    return Stream(
        tokens=tuple(event.token for event in events),
        logprobs=np.stack(rows) if len(rows) == len(events) else None,
        token_logprobs=np.array(chosen, np.float32) if len(chosen) == len(events) else None,
        finish_reason=reasons[-1] if reasons else None,
    )


def watched(
    kind: str, call: Callable[[], object], state: Callable[[], Mapping[str, object]]
) -> ProbeResult:
    """Make ``call``, an invalid call of this ``kind``, and compare the ``state`` before and after.

    Args:
        state: everything that a wrong call could change, as plain values by name.
    """
    before = state()
    error = None
    try:
        call()
    except Exception as raised:  # noqa: BLE001 - whatever it raises is the result
        error = f"{type(raised).__name__}: {raised}"
    after = state()
    changed = tuple(
        f"{name}: {before[name]} became {after[name]}"
        for name in before
        if before[name] != after[name]
    )
    return ProbeResult(kind, error, changed)
