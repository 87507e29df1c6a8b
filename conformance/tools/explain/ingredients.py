"""The ingredients of a schedule, and the schedule without each of them.

An ingredient that cannot be removed without another change has no switch.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import msgspec

from conformance.core.engine_options import EngineOptions
from conformance.core.schedule import Arrival, Request, Schedule, Trigger

Change = Callable[[Schedule], Schedule]


@dataclass(frozen=True)
class Switch:
    """An ingredient of a schedule, how it is removed, and the function that removes it."""

    name: str
    how: str
    off: Change


def switches(schedule: Schedule, *, failing: str | None, window: int | None) -> tuple[Switch, ...]:
    """One switch for each ingredient that ``schedule`` has.

    Args:
        failing: the request with the wrong output, if there is one.
        window: the model's smallest sliding window.
    """
    every = (
        *_of_options(),
        *_of_requests(failing, window),
        Switch("join", "all requests arrive at the start", _arrive_at_once),
        Switch("removal", "nothing is removed", _remove_nothing),
        Switch("probes", "no invalid call is made", _probe_nothing),
        Switch("thread", "decoded on the thread that loaded", _same_thread),
    )
    return tuple(switch for switch in every if _differs(schedule, switch.off))


def without(schedule: Schedule, chosen: Sequence[Switch]) -> Schedule:
    """The schedule with several ingredients off."""
    for switch in chosen:
        schedule = switch.off(schedule)
    return schedule


def _differs(schedule: Schedule, off: Change) -> bool:
    return off(schedule) != schedule


def _of_options() -> tuple[Switch, ...]:
    whole = EngineOptions()
    return (
        Switch(
            "chunks",
            "prompts in one piece",
            lambda s: _each(
                _options(s, prefill_step_size=whole.prefill_step_size),
                lambda r: msgspec.structs.replace(r, segments=()),
            ),
        ),
        Switch("waiting for a slot", "a slot for each request", _slots),
        Switch("quantization", "caches not quantized", lambda s: _options(s, kv=None)),
        Switch("drafting", "no drafter", lambda s: _options(s, drafting=None)),
        Switch("prefix cache", "no reuse of prefixes", lambda s: _options(s, prefix_caching=None)),
        Switch("bounded cache", "no max_kv_size", lambda s: _options(s, max_kv_size=None)),
    )


def _of_requests(failing: str | None, window: int | None) -> tuple[Switch, ...]:
    return (
        Switch("batch", "only the failing request", lambda s: _only(s, failing)),
        Switch("padding", "prompts cut to the shortest", _equal_lengths),
        Switch(
            "neighbours' content",
            "all prompts made of the same tokens",
            lambda s: _same_content(s, failing),
        ),
        Switch(
            "leaving early",
            "all produce the same number of tokens",
            lambda s: _each(
                s,
                lambda r: msgspec.structs.replace(
                    r, max_tokens=max(q.max_tokens for q in s.requests)
                ),
            ),
        ),
        Switch("window", "all fits into the window", lambda s: _inside(s, window)),
        Switch("going on", "no request goes on from another's cache", _fresh),
        Switch("samplers", "all greedy", lambda s: _plain(s, sampler=None)),
        Switch("processors", "no logits processors", lambda s: _plain(s, processors=())),
        Switch("stop sequences", "none", lambda s: _plain(s, stop=())),
    )


def _options(schedule: Schedule, **changes: object) -> Schedule:
    options = msgspec.structs.replace(schedule.options, **changes)
    return msgspec.structs.replace(schedule, options=options)


def _each(schedule: Schedule, change: Callable[[Request], Request]) -> Schedule:
    arrivals = tuple(
        msgspec.structs.replace(arrival, requests=tuple(change(r) for r in arrival.requests))
        for arrival in schedule.arrivals
    )
    return msgspec.structs.replace(schedule, arrivals=arrivals)


def _plain(schedule: Schedule, **changes: object) -> Schedule:
    return _each(schedule, lambda r: msgspec.structs.replace(r, **changes))


def _slots(schedule: Schedule) -> Schedule:
    count = len(schedule.requests)
    options = schedule.options
    return _options(
        schedule,
        prefill_batch_size=max(count, options.prefill_batch_size),
        completion_batch_size=max(count, options.completion_batch_size),
    )


def _arrive_at_once(schedule: Schedule) -> Schedule:
    if len(schedule.arrivals) < 2 or _linked(schedule):
        return schedule
    return msgspec.structs.replace(schedule, arrivals=(Arrival(schedule.requests),))


def _remove_nothing(schedule: Schedule) -> Schedule:
    return msgspec.structs.replace(schedule, removals=())


def _probe_nothing(schedule: Schedule) -> Schedule:
    return msgspec.structs.replace(schedule, probes=())


def _same_thread(schedule: Schedule) -> Schedule:
    return msgspec.structs.replace(schedule, decode_on_other_thread=False)


def _only(schedule: Schedule, failing: str | None) -> Schedule:
    """Only the failing request, or else the first, with the requests that it continues."""
    if len(schedule.requests) < 2:
        return schedule
    kept = [failing or schedule.requests[0].request_id]
    while (source := schedule.request(kept[-1]).continues) is not None:
        kept.append(source.request_id)
    if len(kept) == len(schedule.requests):
        return schedule
    arrivals = []
    for arrival in schedule.arrivals:
        requests = tuple(r for r in arrival.requests if r.request_id in kept)
        known = arrival.when.request_id in (None, *kept)
        if requests:
            arrivals.append(Arrival(requests, arrival.when if known else Trigger()))
    removals = tuple(
        msgspec.structs.replace(r, request_ids=names)
        for r in schedule.removals
        if (names := tuple(n for n in r.request_ids if n in kept))
        and r.when.request_id in (None, *kept)
    )
    probes = tuple(p for p in schedule.probes if p.when.request_id in (None, *kept))
    return msgspec.structs.replace(
        schedule, arrivals=tuple(arrivals), removals=removals, probes=probes
    )


def _equal_lengths(schedule: Schedule) -> Schedule:
    if _fixed(schedule):
        return schedule
    length = min(len(r.prompt) for r in schedule.requests)
    return _each(schedule, lambda r: _cut(r, length))


def _same_content(schedule: Schedule, failing: str | None) -> Schedule:
    """Fill every prompt with the failing request's tokens, keeping its length."""
    if _fixed(schedule) or len(schedule.requests) < 2:
        return schedule
    source = schedule.request(failing or schedule.requests[0].request_id).prompt
    return _each(
        schedule,
        lambda r: msgspec.structs.replace(
            r, prompt=tuple(itertools.islice(itertools.cycle(source), len(r.prompt)))
        ),
    )


def _inside(schedule: Schedule, window: int | None) -> Schedule:
    """Prompts are cut so that each request ends before the window is full."""
    if window is None or _fixed(schedule):
        return schedule
    room = {r.request_id: max(window - 1 - r.max_tokens, 1) for r in schedule.requests}
    return _each(schedule, lambda r: _cut(r, min(len(r.prompt), room[r.request_id])))


def _fresh(schedule: Schedule) -> Schedule:
    return _plain(schedule, continues=None)


def _cut(request: Request, length: int) -> Request:
    if len(request.prompt) <= length:
        return request
    return msgspec.structs.replace(request, prompt=request.prompt[:length], segments=())


def _linked(schedule: Schedule) -> bool:
    return any(r.continues is not None for r in schedule.requests)


def _fixed(schedule: Schedule) -> bool:
    """Whether prompts cannot be cut because they hold media or continue other requests."""
    return _linked(schedule) or any(r.media for r in schedule.requests)
