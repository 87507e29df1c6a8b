"""Invalid calls of the engine: each must raise a clear error and change nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

import msgspec

from conformance.core.engine import Submission
from conformance.core.engine_options import EngineOptions
from conformance.core.invalid_call import watched
from conformance.core.schedule import Request
from conformance.core.trace import ProbeResult
from conformance.reference.sequence import Sequence


class Probed(Protocol):
    """The tested methods of the reference engine, and the state that a wrong call could change."""

    model: Any
    options: EngineOptions
    queue: list[Sequence]
    prefilling: list[Sequence]
    decoding: list[Sequence]
    finished: dict[str, Sequence]

    def __init__(self, model: Any, options: EngineOptions) -> None: ...

    def insert(self, submissions: list[Submission]) -> None: ...  # noqa: D102

    def remove(self, request_ids: list[str]) -> None: ...  # noqa: D102

    def cache_bytes(self) -> int | None: ...  # noqa: D102


Call = Callable[[Probed], object]

_VALID = Request("probe", (5, 6, 7), 4)


def _insert(**wrong: object) -> Call:
    """A valid request and an invalid one, in one call: neither may be inserted."""
    invalid = msgspec.structs.replace(_VALID, **{"request_id": "wrong probe", **wrong})
    return lambda engine: engine.insert([Submission(_VALID), Submission(invalid)])


def _construct(**wrong: int) -> Call:
    return lambda engine: type(engine)(
        engine.model, msgspec.structs.replace(engine.options, **wrong)
    )


PROBES: Mapping[str, Call] = {
    "mismatched_segments": _insert(segments=(1, 1)),
    "mismatched_ids": _insert(request_id="probe"),
    "empty_prompt": _insert(prompt=()),
    "zero_max_tokens": _insert(max_tokens=0),
    "negative_max_tokens": _insert(max_tokens=-1),
    "unknown_request": lambda engine: engine.remove(["nobody"]),
    "zero_completion_batch": _construct(completion_batch_size=0),
    "negative_prefill_batch": _construct(prefill_batch_size=-1),
    "zero_prefill_step": _construct(prefill_step_size=0),
}


def probe(engine: Probed, kind: str) -> ProbeResult:
    """Make the invalid call ``kind`` and compare the engine's state before and after."""
    return watched(kind, lambda: PROBES[kind](engine), lambda: _state(engine))


def _state(engine: Probed) -> dict[str, object]:
    """The state that an invalid call could change: stage, tokens and bytes of each request."""
    places = {
        "queue": engine.queue,
        "prefill": engine.prefilling,
        "decode": engine.decoding,
        "finished": engine.finished.values(),
    }
    state: dict[str, object] = {
        name: [(row.name, len(row.history), len(row.todo), len(row.produced)) for row in rows]
        for name, rows in places.items()
    }
    return state | {"bytes": engine.cache_bytes()}
