"""Invalid calls of the engine: each is refused with a clear error before anything is changed."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Set
from typing import Any, Protocol

import msgspec

from conformance.core.engine import Submission
from conformance.core.engine_options import EngineOptions
from conformance.core.schedule import Request
from conformance.core.trace import ProbeResult, watched
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


def check_options(options: EngineOptions) -> None:
    """Refuse sizes with which nothing could run.

    Raises:
        ValueError: names the option.
    """
    for name in ("prefill_step_size", "prefill_batch_size", "completion_batch_size"):
        size = getattr(options, name)
        if size < 1:
            raise ValueError(f"{name} is {size}, must be at least 1")
    if options.max_kv_size is not None and options.max_kv_size < 1:
        raise ValueError(f"max_kv_size is {options.max_kv_size}, must be at least 1")


def check_requests(requests: Collection[Request], known: Set[str]) -> None:
    """Refuse requests that could not be run, and the whole call with them.

    Raises:
        ValueError: names the request and the field.
    """
    seen = set(known)
    for request in requests:
        where = f"request {request.request_id!r}"
        if request.request_id in seen:
            raise ValueError(f"{where}: the id is in use")
        seen.add(request.request_id)
        if not request.prompt:
            raise ValueError(f"{where}: prompt is empty")
        if request.max_tokens < 1:
            raise ValueError(f"{where}: max_tokens is {request.max_tokens}, must be at least 1")
        if request.segments and sum(request.segments) != len(request.prompt):
            raise ValueError(f"{where}: segments and prompt differ in length")
        if any(length < 1 for length in request.segments):
            raise ValueError(f"{where}: a segment is empty")


def check_known(request_ids: Collection[str], live: Set[str]) -> None:
    """Refuse to remove requests that are not live.

    Raises:
        ValueError: names the first request that is not live.
    """
    for name in request_ids:
        if name not in live:
            raise ValueError(f"no live request {name!r} to remove")
