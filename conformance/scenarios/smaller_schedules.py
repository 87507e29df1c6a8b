"""Makes a failing schedule small: fewer requests, then events, ingredients, lengths, moments."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import product
from typing import Any

from msgspec.structs import replace

from conformance.core.engine_options import EngineOptions
from conformance.core.errors import ScheduleError
from conformance.core.schedule import Arrival, Request, Schedule, Trigger, to_json, validate
from conformance.scenarios.minimizing import Minimum, Pass, fewer, first_of, lower, minimize

Size = tuple[int, ...]

_PLAIN: dict[str, Any] = {
    "continues": None,
    "segments": (),
    "processors": (),
    "sampler": None,
    "stop": (),
    "budget": None,
}
_PLAIN_RUN: dict[str, Any] = {
    "decode_on_other_thread": False,
    "beside_models": False,
    "weigh": None,
}
_PLAIN_OPTIONS = {name: getattr(EngineOptions(), name) for name in EngineOptions.__struct_fields__}
_EVENTS = ("removals", "probes")


def smallest(
    schedule: Schedule, fails: Callable[[Schedule], bool], *, seconds: float
) -> Minimum[Schedule]:
    """The smallest schedule that fails, as far as time allows; all that are tried are valid."""
    return minimize(schedule, fails, PASSES, seconds=seconds, key=to_json)


def size(schedule: Schedule) -> Size:
    """The size of a schedule, compared field by field.

    Requests; events (removals, invalid calls, arrivals); ingredients of requests and of the run;
    media; prompt tokens; output tokens; moments of events; distinct prompts.
    """
    requests = schedule.requests
    return (
        len(requests),
        len(schedule.removals) + len(schedule.probes) + len(schedule.arrivals),
        len(_ingredients(schedule)),
        sum(len(r.media) for r in requests),
        sum(len(r.prompt) for r in requests),
        sum(r.max_tokens for r in requests),
        sum(item.when.count for _, _, item in _timed(schedule)),
        len({r.prompt for r in requests}),
    )


def _smaller(make: Callable[[Schedule], Iterable[Schedule]]) -> Pass[Schedule]:
    """A pass over those candidates that are valid and smaller."""

    def candidates(schedule: Schedule) -> Iterator[Schedule]:
        now = size(schedule)
        for candidate in make(schedule):
            if size(candidate) < now and _valid(candidate) is not None:
                yield candidate

    return first_of(candidates)


def _valid(schedule: Schedule) -> Schedule | None:
    if not schedule.requests:
        return None
    try:
        return validate(schedule)
    except ScheduleError:
        return None


def _names(schedule: Schedule) -> list[str]:
    return [request.request_id for request in schedule.requests]


def _with_requests_named(schedule: Schedule, names: Sequence[str]) -> Schedule | None:
    for name in set(_names(schedule)).difference(names):
        schedule = without(schedule, name)
    return _valid(schedule)


def without(schedule: Schedule, name: str) -> Schedule:
    """The schedule without a request; events that waited for it happen at the start."""

    def unlinked(request: Request) -> Request:
        linked = request.continues is not None and request.continues.request_id == name
        return replace(request, continues=None) if linked else request

    def free(item: Any) -> Any:
        return replace(item, when=Trigger()) if item.when.request_id == name else item

    arrivals = [
        replace(a, requests=tuple(unlinked(r) for r in a.requests if r.request_id != name))
        for a in schedule.arrivals
    ]
    removals = [
        replace(r, request_ids=tuple(n for n in r.request_ids if n != name))
        for r in schedule.removals
    ]
    return replace(
        schedule,
        arrivals=tuple(free(a) for a in arrivals if a.requests),
        removals=tuple(free(r) for r in removals if r.request_ids),
        probes=tuple(map(free, schedule.probes)),
    )


def _events(schedule: Schedule) -> list[tuple[str, int]]:
    return [(field, i) for field in _EVENTS for i in range(len(getattr(schedule, field)))]


def _with_events(schedule: Schedule, kept: Sequence[tuple[str, int]]) -> Schedule | None:
    chosen = {
        field: tuple(getattr(schedule, field)[i] for name, i in kept if name == field)
        for field in _EVENTS
    }
    return _valid(replace(schedule, **chosen))


def _fewer_arrivals(schedule: Schedule) -> Iterator[Schedule]:
    """All requests at once; or two arrivals together, whose later requests may stay longer."""
    arrivals = schedule.arrivals
    if len(arrivals) > 1:
        yield replace(schedule, arrivals=(Arrival(schedule.requests),))
    for index, longer in product(range(1, len(arrivals)), (0, 2)):
        before, own = arrivals[index - 1 : index + 1]
        late = (replace(r, max_tokens=r.max_tokens + longer) for r in own.requests)
        merged = Arrival((*before.requests, *late), before.when)
        yield replace(schedule, arrivals=(*arrivals[: index - 1], merged, *arrivals[index + 1 :]))


# The place of an ingredient: the options, the run or a request, and the field.
_Ingredient = tuple[str, str]
_OPTIONS, _RUN = "", " "  # no request has such a name


def _ingredients(schedule: Schedule) -> list[_Ingredient]:
    """All fields that need not be set, but are."""
    holders: list[tuple[str, Any, dict[str, Any]]] = [
        (_OPTIONS, schedule.options, _PLAIN_OPTIONS),
        (_RUN, schedule, _PLAIN_RUN),
        *((request.request_id, request, _PLAIN) for request in schedule.requests),
    ]
    return [
        (place, name)
        for place, holder, plain in holders
        for name, value in plain.items()
        if getattr(holder, name) != value
    ]


def _with_ingredients(schedule: Schedule, kept: Sequence[_Ingredient]) -> Schedule | None:
    return _valid(_plain(schedule, set(_ingredients(schedule)).difference(kept)))


def _plain(schedule: Schedule, left_out: Iterable[_Ingredient]) -> Schedule:
    """The schedule without these ingredients."""
    fields: dict[str, dict[str, Any]] = {}
    for place, name in left_out:
        plain = _PLAIN_OPTIONS if place == _OPTIONS else _PLAIN | _PLAIN_RUN
        fields.setdefault(place, {})[name] = plain[name]
    options = replace(schedule.options, **fields.pop(_OPTIONS, {}))
    schedule = replace(schedule, options=options, **fields.pop(_RUN, {}))
    return with_requests(
        schedule, *(replace(schedule.request(name), **plain) for name, plain in fields.items())
    )


def _plainer(schedule: Schedule) -> Iterator[Schedule]:
    """Without an ingredient in all requests at once: in a single one, it may hide the defect."""
    set_ = _ingredients(schedule)
    for field in _PLAIN:
        yield _plain(schedule, [one for one in set_ if one[1] == field and one[0] != _OPTIONS])
    for request in schedule.requests:
        if request.stop and len(request.stop[0]) > 1:
            yield with_requests(schedule, replace(request, stop=(request.stop[0][:1],)))


def _shorter_together(schedule: Schedule) -> Iterator[Schedule]:
    """Short prompts of two lengths in turn, of plain requests too, with few output tokens.

    If lengths must differ, cutting one prompt alone may hide the defect.
    """
    requests = schedule.requests
    own = [one for one in _ingredients(schedule) if one[0] not in (_OPTIONS, _RUN)]
    if own:
        plain = _plain(schedule, own)
        for counts in (None, (1, 3), (3, 1), (2, 3)):
            for lengths in (None, (1, 3), (3, 2), (2, 3)):
                cut = partial(_sized, counts=counts, lengths=lengths)
                yield with_requests(plain, *map(cut, plain.requests, range(len(requests))))
    if not any(request.media for request in requests):
        for lengths in ((1, 1), (1, 2), (2, 1), (2, 2), (1, 3), (3, 1), (2, 3), (3, 2)):
            cut = partial(_sized, counts=None, lengths=lengths)
            yield with_requests(schedule, *map(cut, requests, range(len(requests))))


def _sized(
    request: Request, at: int, *, counts: tuple[int, int] | None, lengths: tuple[int, int] | None
) -> Request:
    """The request with ``counts`` output tokens and a prompt cut to ``lengths``, alternating."""
    if counts is not None:
        request = replace(request, max_tokens=counts[at % 2])
    if lengths is None or request.media:
        return request
    return replace(request, prompt=request.prompt[: lengths[at % 2]], segments=())


def _same_prompts(schedule: Schedule) -> Iterator[Schedule]:
    """With another request's prompt in place of one that is as long or longer."""
    for request in schedule.requests:
        if not request.media:
            others = {r.prompt for r in schedule.requests if len(r.prompt) <= len(request.prompt)}
            for prompt in sorted(
                others - {request.prompt}, key=lambda tokens: (len(tokens), tokens)
            ):
                yield with_requests(schedule, replace(request, prompt=prompt, segments=()))


def _lengths(schedule: Schedule) -> Iterator[tuple[_Ingredient, int, int]]:
    for request in schedule.requests:
        yield (request.request_id, "max_tokens"), 1, request.max_tokens
    for request in schedule.requests:
        end = max((media.span[1] for media in request.media), default=0)
        yield (request.request_id, "prompt"), max(end, 1), len(request.prompt)


def _with_length(schedule: Schedule, place: _Ingredient, length: int) -> Schedule | None:
    request = schedule.request(place[0])
    if place[1] == "max_tokens":
        return _valid(with_requests(schedule, replace(request, max_tokens=length)))
    # Two segments remain two.
    segments = (length - 1, 1) if request.segments and length > 1 else ()
    shorter = replace(request, prompt=request.prompt[:length], segments=segments)
    return _valid(with_requests(schedule, shorter))


def _timed(schedule: Schedule) -> Iterator[tuple[str, int, Any]]:
    """Everything that happens at a moment, by its field and index."""
    for field in ("arrivals", *_EVENTS):
        for index, item in enumerate(getattr(schedule, field)):
            yield field, index, item


def _moments(schedule: Schedule) -> Iterator[tuple[tuple[str, int], int, int]]:
    for field, index, item in _timed(schedule):
        yield (field, index), 0, item.when.count


def _with_moment(schedule: Schedule, place: tuple[str, int], count: int) -> Schedule | None:
    field, index = place
    items = list(getattr(schedule, field))
    items[index] = replace(items[index], when=replace(items[index].when, count=count))
    return _valid(replace(schedule, **{field: tuple(items)}))


def _later_instead(schedule: Schedule) -> Iterator[Schedule]:
    """Without one request, and another one a little later: two suffice for a late join."""
    if len(schedule.requests) < 3:
        return
    for gone in _names(schedule):
        less = without(schedule, gone)
        for late in less.requests:
            rest = tuple(
                Arrival(kept, arrival.when)
                for arrival in less.arrivals
                if (kept := tuple(r for r in arrival.requests if r != late))
            )
            for step in (1, 2, 3):
                moved = replace(less, arrivals=(*rest, Arrival((late,), Trigger(count=step))))
                yield moved
                yield replace(moved, options=EngineOptions())


def with_requests(schedule: Schedule, *requests: Request) -> Schedule:
    """The schedule with these requests in place of those with the same ids."""
    now = {request.request_id: request for request in requests}
    arrivals = tuple(
        replace(a, requests=tuple(now.get(r.request_id, r) for r in a.requests))
        for a in schedule.arrivals
    )
    return replace(schedule, arrivals=arrivals)


PASSES: tuple[Pass[Schedule], ...] = (
    fewer(_names, _with_requests_named),
    fewer(_events, _with_events),
    _smaller(_fewer_arrivals),
    _smaller(_plainer),
    fewer(_ingredients, _with_ingredients),
    _smaller(_shorter_together),
    lower(_lengths, _with_length),
    _smaller(_same_prompts),
    lower(_moments, _with_moment),
    _smaller(_later_instead),
)
"""Requests, events, ingredients, lengths, moments."""
