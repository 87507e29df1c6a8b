"""What an engine did: a recording that can be judged without the model.

Arrays are NumPy float32. Nothing here knows mlx or pytest.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

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
    """What one request gives when it is decoded alone, or what it gave in a batch.

    Attributes:
        tokens: the token ids produced, in order.
        logprobs: float32 ``[len(tokens), vocab]``, the distribution each token was chosen from;
            ``None`` where an engine does not show it.
        token_logprobs: float32 ``[len(tokens)]``, the chosen tokens' own.
        finish_reason: ``None`` where the request was removed or the run ended first.
    """

    tokens: tuple[int, ...]
    logprobs: np.ndarray | None
    token_logprobs: np.ndarray | None = None
    finish_reason: FinishReason | None = None


@dataclass(frozen=True)
class TokenEvent:
    """One token that an engine gave out."""

    request_id: str
    token: int
    logprobs: np.ndarray | None = None
    token_logprob: float | None = None
    finish_reason: FinishReason | None = None


@dataclass(frozen=True)
class ForwardCall:
    """One call of the model: its input was ``[batch, length]`` token ids and took ``seconds``.

    ``reads`` is how often the host fetched numbers of the device since the call before it ended.
    """

    batch: int
    length: int
    seconds: float = 0.0
    reads: int = 0

    @property
    def positions(self) -> int:
        """Token positions computed, padding included."""
        return self.batch * self.length


@dataclass(frozen=True)
class StepOutput:
    """What an engine's ``step`` returns.

    Attributes:
        events: the tokens that came out.
        processed: how many prompt tokens of which request were worked on in this step.
        reused: how many prompt tokens of a request that now left the queue were not worked on,
            because their cache was there from an earlier one.
        drafted: how many tokens were drafted for a request and then verified in this step.
    """

    events: tuple[TokenEvent, ...] = ()
    processed: Mapping[str, int] = field(default_factory=dict)
    reused: Mapping[str, int] = field(default_factory=dict)
    drafted: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class ProbeResult:
    """An invalid call and how the engine took it.

    Attributes:
        kind: which probe of the engine.
        error: ``"TypeName: text"`` of the exception; ``None`` if the call was accepted.
        changed: what in the engine's state differs after the call; empty when nothing does.
    """

    kind: str
    error: str | None
    changed: tuple[str, ...] = ()


@dataclass(frozen=True)
class CachedLayer:
    """What one layer keeps of the rows that decode: its bytes, and whether they are quantized."""

    nbytes: int
    quantized: bool


@dataclass(frozen=True)
class KeptCache:
    """The cache of a request that has ended: bytes that it counts, and that go free with it."""

    request_id: str
    counted: int
    held: int


@dataclass(frozen=True)
class Step:
    """One step of a run.

    Attributes:
        index: counts from zero.
        stages: where each request was when the step began, arrivals and removals done.
        output: what the engine returned.
        forwards: the model calls that the step made.
        cache_bytes: bytes of live caches after the step; ``None`` where the engine cannot tell.
        probes: invalid calls made before the step.
        removed_from: the stage in which each request was that was removed before the step.
        rows: the batch row of each request that decoded when the step began, where known.
        layers: what each layer keeps of the rows that decode after the step, where known.
        pending: edges of the graph that the live caches wait for after the step; ``None`` where
            the schedule does not ask or the engine cannot tell.
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

    def in_stage(self, stage: Stage) -> tuple[str, ...]:
        """The requests that were in ``stage`` when the step began."""
        return tuple(name for name, where in self.stages.items() if where is stage)


@dataclass(frozen=True)
class Failure:
    """An exception out of the engine: type, text and the last frame inside the library."""

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
        schedule: what was played.
        mode: forced or free.
        steps: all steps, in order.
        failure: the exception that ended the run, if one did.
        out_of_steps: the step bound was reached with requests still unfinished.
        cache_bytes_at_end: bytes of caches still held after the last request ended.
        missed: triggers that never fired, in words.
        kept: what the first request's cache held in the end, where the schedule asks.
    """

    schedule: Schedule
    mode: Mode
    steps: tuple[Step, ...]
    failure: Failure | None = None
    out_of_steps: bool = False
    cache_bytes_at_end: int | None = None
    missed: tuple[str, ...] = ()
    kept: KeptCache | None = None

    def events(self, request_id: str) -> tuple[TokenEvent, ...]:
        """All events of one request, in order."""
        return self._events.get(request_id, ())

    def stream(self, request_id: str) -> Stream:
        """The events of one request as a stream. ``logprobs`` is given if every event has them."""
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
