"""The largest value of each quantity that schedules play: rows, tokens, stop sequences, and so on.

What an engine does in another way from a certain number on is right below it. So each quantity must
go past the numbers at which code commonly changes: 8, 16, 32, 64, 128, 256, 512.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from conformance.core.schedule import CYCLES, Arrival, Removal, Request, Schedule, Stage, Weigh
from conformance.scenarios.foreseen import common

PLAIN = "plain"
WITH = ("quantized", "drafts", "kept", "media")
"""What else a schedule has: a quantity may be large without it, and never with it."""

Where = dict[tuple[str, str], dict[str, tuple[float, str]]]


@dataclass(frozen=True)
class Largest:
    """The largest value of a quantity that an engine's schedules play.

    Attributes:
        values: the largest value by what else the schedule has, one of ``WITH`` or ``PLAIN``.
        by: the schedule with the largest of all.
    """

    engine: str
    quantity: str
    values: dict[str, float]
    by: str


class LargestValues:
    """Collects the largest values of schedules."""

    def __init__(self) -> None:
        self._found: Where = defaultdict(dict)

    def add(self, engine: str, where: str, schedule: Schedule) -> None:
        """Measure a schedule that ``engine`` plays; ``where`` names it."""
        features = features_of(schedule) or (PLAIN,)
        for quantity, value in quantities(schedule).items():
            known = self._found[engine, quantity]
            for feature in features:
                if value > known.get(feature, (0, ""))[0]:
                    known[feature] = value, where

    def table(self) -> Iterator[Largest]:
        """One row for each engine and quantity."""
        for (engine, quantity), known in self._found.items():
            if known:
                _, by = max(known.values(), key=lambda one: one[0])
                values = {feature: value for feature, (value, _) in known.items()}
                yield Largest(engine, quantity, values, by)


def features_of(schedule: Schedule) -> tuple[str, ...]:
    """Those of ``WITH`` that the schedule has."""
    options = schedule.options
    media = any(request.media for request in schedule.requests)
    has = (options.kv, options.drafting, options.prefix_caching, media)
    return tuple(name for name, given in zip(WITH, has, strict=True) if given)


def quantities(schedule: Schedule) -> dict[str, float]:
    """The schedule's value of each quantity that it has."""
    requests, options = schedule.requests, schedule.options
    found = Counter[str]()

    def see(quantity: str, value: float) -> None:
        if value:
            found[quantity] = max(found[quantity], value)  # type: ignore[assignment]

    see("requests of one engine", len(requests))
    see("requests in one call", max(len(arrival.requests) for arrival in schedule.arrivals))
    see("rows at once, at most", _at_once(schedule))
    see("rows in one prefill, at most", min(options.prefill_batch_size, _at_once(schedule)))
    see("removals in one call", max((len(r.request_ids) for r in schedule.removals), default=0))
    see("removals", len(schedule.removed_ids))
    see("joins between removals", _joins_between(schedule))
    see("engines, one after another", CYCLES if schedule.weigh is Weigh.CYCLES else 1)
    see("media of one engine", sum(len(request.media) for request in requests))
    see("tenants", len({request.tenant for request in requests if request.tenant}))
    for request in requests:
        for quantity, value in _of_request(request).items():
            see(quantity, value)
        see("pieces of a prompt", -(-len(request.prompt) // options.prefill_step_size))
    if options.prefix_caching is not None:
        see("prompts to keep", len({request.prompt for request in requests}))
        see("tokens of a shared prefix", _shared(requests))
    if options.drafting is not None:
        see("tokens verified at once", options.drafting.block_size or 0)
    return dict(found)


def _of_request(request: Request) -> dict[str, float]:
    found: dict[str, float] = {
        "tokens of a prompt": len(request.prompt),
        "tokens of an answer": request.max_tokens,
        "keys of a row": len(request.prompt) + request.max_tokens,
        "segments of a prompt": len(request.segments),
        "stop sequences of a request": len(request.stop),
        "tokens of a stop sequence": max(map(len, request.stop), default=0),
        "processors of a request": len(request.processors),
        "media of a request": len(request.media),
    }
    given = [processor.args for processor in request.processors]
    given += [request.sampler.args] if request.sampler is not None else []
    given += [request.asked.fields] if request.asked is not None else []
    for args in given:
        for name, value in args.items():
            number = _number(value)
            if number:
                found[name] = max(number, found.get(name, 0))
    return found


def _number(value: Any) -> float:
    """A number as it is; of a table or a list, how many entries it has."""
    if isinstance(value, dict | list | tuple):
        return len(value)
    return value if isinstance(value, int | float) and not isinstance(value, bool) else 0


def _at_once(schedule: Schedule) -> int:
    """The engine's rows, or the most requests that do not wait for an earlier one's end."""
    waves = Counter[int]()
    wave = 0
    for arrival in schedule.arrivals:
        wave += arrival.when.stage in {Stage.FINISHED, Stage.REMOVED}
        waves[wave] += len(arrival.requests)
    return min(schedule.options.completion_batch_size, max(waves.values()))


def _joins_between(schedule: Schedule) -> int:
    """The most requests that arrive between two removals, where one request times them all."""
    moments = defaultdict[str, list[tuple[int, int]]](list)
    timed: tuple[Arrival | Removal, ...] = (*schedule.arrivals, *schedule.removals)
    for event in timed:
        if event.when.request_id is not None and event.when.stage is Stage.DECODE:
            joins = 0 if isinstance(event, Removal) else len(event.requests)
            moments[event.when.request_id].append((event.when.count, joins))
    most = 0
    for events in moments.values():
        since: int | None = None
        for _, joins in sorted(events, key=lambda one: (one[0], -one[1])):
            if joins and since is not None:
                since += joins
            elif not joins:
                most, since = max(most, since or 0), 0
    return most


def _shared(requests: tuple[Request, ...]) -> int:
    pairs = ((one, other) for at, one in enumerate(requests) for other in requests[:at])
    return max((common(one.prompt, other.prompt) for one, other in pairs), default=0)
