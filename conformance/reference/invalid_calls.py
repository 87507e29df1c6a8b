"""Refuses invalid calls with a clear message, before anything is changed."""

from __future__ import annotations

from collections.abc import Sequence, Set

from conformance.core.engine_options import EngineOptions
from conformance.core.schedule import Request


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


def check_requests(requests: Sequence[Request], known: Set[str]) -> None:
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


def check_known(request_ids: Sequence[str], live: Set[str]) -> None:
    """Refuse to remove requests that are not live.

    Raises:
        ValueError: names the first request that is not live.
    """
    for name in request_ids:
        if name not in live:
            raise ValueError(f"no live request {name!r} to remove")
