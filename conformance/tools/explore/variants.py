"""Simpler variants of a schedule."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain, product
from typing import Any

import msgspec

from conformance.core.engine_options import EngineOptions
from conformance.core.schedule import Arrival, Request, Schedule, Trigger

_PLAIN: dict[str, Any] = {
    "continues": None,
    "segments": (),
    "processors": (),
    "sampler": None,
    "stop": (),
}


def ingredients(request: Request) -> int:
    """The number of optional fields that a request sets."""
    return sum(getattr(request, name) != plain for name, plain in _PLAIN.items())


def variants(schedule: Schedule) -> Iterator[Schedule]:
    """Simpler variants of a schedule, the largest steps first."""
    return chain(
        (without(schedule, request.request_id) for request in schedule.requests),
        _later_instead(schedule),
        _fewer_events(schedule),
        _fewer_options(schedule),
        _simpler_together(schedule),
        _simpler_requests(schedule),
        _earlier(schedule),
    )


def without(schedule: Schedule, name: str) -> Schedule:
    """The schedule without a request; events that waited for it happen at the start."""
    arrivals = [
        Arrival(tuple(_unlinked(r, name) for r in a.requests if r.request_id != name), a.when)
        for a in schedule.arrivals
    ]
    removals = [
        msgspec.structs.replace(r, request_ids=tuple(n for n in r.request_ids if n != name))
        for r in schedule.removals
    ]
    return msgspec.structs.replace(
        schedule,
        arrivals=tuple(_free(a, name) for a in arrivals if a.requests),
        removals=tuple(_free(r, name) for r in removals if r.request_ids),
    )


def _unlinked(request: Request, name: str) -> Request:
    if request.continues is None or request.continues.request_id != name:
        return request
    return msgspec.structs.replace(request, continues=None)


def _free(item: Any, name: str) -> Any:
    if item.when.request_id != name:
        return item
    return msgspec.structs.replace(item, when=Trigger())


def _fewer_events(schedule: Schedule) -> Iterator[Schedule]:
    for index in range(len(schedule.removals)):
        yield msgspec.structs.replace(schedule, removals=without_item(schedule.removals, index))
    # An arrival joins the previous one; the later request may then have to stay longer.
    for index, longer in product(range(1, len(schedule.arrivals)), (0, 2)):
        before, own = schedule.arrivals[index - 1], schedule.arrivals[index]
        late = (msgspec.structs.replace(r, max_tokens=r.max_tokens + longer) for r in own.requests)
        merged = Arrival((*before.requests, *late), before.when)
        rest = schedule.arrivals
        arrivals = (*rest[: index - 1], merged, *rest[index + 1 :])
        yield msgspec.structs.replace(schedule, arrivals=arrivals)
    if schedule.decode_on_other_thread:
        yield msgspec.structs.replace(schedule, decode_on_other_thread=False)


def _fewer_options(schedule: Schedule) -> Iterator[Schedule]:
    options = schedule.options
    if options != EngineOptions():
        yield msgspec.structs.replace(schedule, options=EngineOptions())
    for name in changed(options):
        plain = getattr(EngineOptions(), name)
        less = msgspec.structs.replace(options, **{name: plain})
        yield msgspec.structs.replace(schedule, options=less)


def _simpler_together(schedule: Schedule) -> Iterator[Schedule]:
    """Without an ingredient in all requests at once, and with short prompts of various lengths.

    Changing only one request may hide the defect.
    """
    requests = schedule.requests
    if any(ingredients(request) for request in requests):
        for counts in (None, (1, 3), (3, 1), (2, 3)):
            for lengths in (None, (1, 3), (3, 2), (2, 3)):
                yield with_requests(
                    schedule,
                    *(
                        _sized(msgspec.structs.replace(r, **_PLAIN), at, counts, lengths)
                        for at, r in enumerate(requests)
                    ),
                )
    for name, plain in _PLAIN.items():
        if any(getattr(request, name) != plain for request in requests):
            yield with_requests(
                schedule, *(msgspec.structs.replace(r, **{name: plain}) for r in requests)
            )
    if any(request.media for request in requests):
        return
    for lengths in ((1, 1), (1, 2), (2, 1), (2, 2), (1, 3), (3, 1), (2, 3), (3, 2)):
        yield with_requests(
            schedule, *(_sized(r, at, None, lengths) for at, r in enumerate(requests))
        )


def _sized(
    request: Request, at: int, counts: tuple[int, int] | None, lengths: tuple[int, int] | None
) -> Request:
    """The request with ``counts`` output tokens and a prompt cut to ``lengths``, alternating."""
    if counts is not None:
        request = msgspec.structs.replace(request, max_tokens=counts[at % 2])
    if lengths is None or request.media:
        return request
    prompt = request.prompt[: lengths[at % 2]]
    return msgspec.structs.replace(request, prompt=prompt, segments=())


def _later_instead(schedule: Schedule) -> Iterator[Schedule]:
    """Without one request, and another one a little later: two suffice for a late join."""
    if len(schedule.requests) < 3:
        return
    for gone in schedule.requests:
        less = without(schedule, gone.request_id)
        for late in less.requests:
            rest = tuple(
                Arrival(kept, arrival.when)
                for arrival in less.arrivals
                if (kept := tuple(r for r in arrival.requests if r != late))
            )
            for step in (1, 2, 3):
                arrivals = (*rest, Arrival((late,), Trigger(count=step)))
                changed = msgspec.structs.replace(less, arrivals=arrivals)
                yield changed
                yield msgspec.structs.replace(changed, options=EngineOptions())


def _simpler_requests(schedule: Schedule) -> Iterator[Schedule]:
    for request in schedule.requests:
        for simpler in _simpler(request, schedule.requests):
            yield with_requests(schedule, simpler)


def _simpler(request: Request, others: Sequence[Request]) -> Iterator[Request]:
    for name, plain in _PLAIN.items():
        if getattr(request, name) != plain:
            yield msgspec.structs.replace(request, **{name: plain})
    if request.stop and len(request.stop[0]) > 1:
        yield msgspec.structs.replace(request, stop=(request.stop[0][:1],))
    if not request.media:
        for length in sorted({1, 2, len(request.prompt) // 2, len(request.prompt) - 1}):
            if 0 < length < len(request.prompt):
                yield _cut(request, length)
        shorter = {r.prompt for r in others if len(r.prompt) <= len(request.prompt)}
        for prompt in sorted(shorter - {request.prompt}, key=lambda prompt: (len(prompt), prompt)):
            yield msgspec.structs.replace(request, prompt=prompt, segments=())
    for count in sorted({1, 2, request.max_tokens // 2, request.max_tokens - 1}):
        if 0 < count < request.max_tokens:
            yield msgspec.structs.replace(request, max_tokens=count)


def _cut(request: Request, length: int) -> Request:
    """The request with a shorter prompt; two segments remain two."""
    segments = (length - 1, 1) if request.segments and length > 1 else ()
    return msgspec.structs.replace(request, prompt=request.prompt[:length], segments=segments)


def with_requests(schedule: Schedule, *requests: Request) -> Schedule:
    """The schedule with these requests in place of those with the same ids."""
    now = {request.request_id: request for request in requests}
    arrivals = tuple(
        Arrival(tuple(now.get(r.request_id, r) for r in a.requests), a.when)
        for a in schedule.arrivals
    )
    return msgspec.structs.replace(schedule, arrivals=arrivals)


def _earlier(schedule: Schedule) -> Iterator[Schedule]:
    for field in ("arrivals", "removals"):
        items = getattr(schedule, field)
        for index, item in enumerate(items):
            for count in range(item.when.count):
                when = msgspec.structs.replace(item.when, count=count)
                sooner = msgspec.structs.replace(item, when=when)
                changed = (*items[:index], sooner, *items[index + 1 :])
                yield msgspec.structs.replace(schedule, **{field: changed})


def without_item(items: tuple[Any, ...], index: int) -> tuple[Any, ...]:
    """The items without one of them."""
    return (*items[:index], *items[index + 1 :])


def changed(options: EngineOptions) -> list[str]:
    """The names of the fields that differ from the default."""
    fields = EngineOptions.__struct_fields__
    return [name for name in fields if getattr(options, name) != getattr(EngineOptions(), name)]
