"""Clients of a server that do more than ask: they go away, come by hundreds, or ask nonsense."""

from __future__ import annotations

import numpy as np

from conformance.core.engine_options import EngineOptions, PrefixCaching
from conformance.core.schedule import Arrival, Probe, Removal, Request, Schedule
from conformance.core.trace import Trace
from conformance.scenarios.build import (
    LONG,
    MEDIUM,
    SHORT,
    TWO,
    gone,
    one_by_one,
    produced,
    queued,
    text_request,
    together,
)
from conformance.scenarios.scenario import Brief

# Output tokens of a request, and of one that others join: servers look for requests now and then.
ANSWER, LASTING = 24, 1200
FLOOD, FLOOD_SLOTS = 320, 32
BUSY = EngineOptions(busy=True)


def prefixes(brief: Brief) -> list[Schedule]:
    """Many prompts begin alike; then they begin otherwise; then as before."""
    rows = []
    for block, variant in enumerate((0, 1, 0)):
        begin = brief.prompt(LONG, variant)
        rows += [
            Request(f"r{block}{i}", begin + brief.prompt(SHORT, 3 + i + block), ANSWER // 2)
            for i in range(3)
        ]
    caching = PrefixCaching()
    options = EngineOptions(prefix_caching=caching)
    first, *others = rows
    return [
        one_by_one("one_by_one", rows, options),
        Schedule(
            "together",
            (together(first), together(*others, when=gone(first.request_id))),
            options=options,
        ),
    ]


def reused(trace: Trace) -> bool:
    """Whether some prompt's begin was not computed again."""
    return any(step.output.reused for step in trace.steps)


def leaves(brief: Brief) -> list[Schedule]:
    """Clients go away: in the middle of an answer, before it has begun, from the only slot."""
    slot = EngineOptions(prefill_batch_size=1, completion_batch_size=1)
    long = text_request(brief, "long", SHORT, max_tokens=2 * LASTING)
    rows = [text_request(brief, f"r{n}", n, max_tokens=ANSWER) for n in (LONG, MEDIUM, TWO)]
    after = text_request(brief, "next", MEDIUM, variant=1, max_tokens=ANSWER)
    return [
        Schedule(
            "only_slot",
            (together(long), together(after, when=gone("long", removed=True))),
            (Removal(("long",), produced("long", 8)),),
            options=slot,
        ),
        Schedule(
            "stream",
            (together(*rows), together(after, when=gone(f"r{LONG}", removed=True))),
            (Removal((f"r{LONG}",), produced(f"r{LONG}", 3)),),
            options=BUSY,
        ),
        Schedule(
            "waiting",
            (together(*rows), together(after, when=gone(f"r{MEDIUM}", removed=True))),
            (Removal((f"r{MEDIUM}",), queued(f"r{MEDIUM}")),),
            options=BUSY,
        ),
    ]


def flood(brief: Brief) -> list[Schedule]:
    """Ten times as many requests as rows; of some the client goes away."""
    rng = np.random.default_rng((brief.seed, FLOOD))
    rows, removals = [], []
    for index in range(FLOOD):
        length = (SHORT, MEDIUM, TWO, LONG)[int(rng.integers(4))]
        row = text_request(
            brief,
            f"r{index}",
            length,
            variant=int(rng.integers(4)),
            max_tokens=int(rng.integers(2, 9)),
        )
        rows.append(row)
        fate = rng.random()
        if fate < 0.1:
            removals.append(Removal((row.request_id,), queued(row.request_id)))
        elif fate < 0.25:
            removals.append(Removal((row.request_id,), produced(row.request_id, 1)))
    options = EngineOptions(busy=True, completion_batch_size=FLOOD_SLOTS)
    return [Schedule("flood", (together(*rows),), tuple(removals), options=options)]


def all_ended(trace: Trace) -> bool:
    """Whether each request whose client stayed has its answer."""
    staying = {r.request_id for r in trace.schedule.requests} - trace.schedule.removed_ids
    return all(trace.stream(name).finish_reason is not None for name in staying)


# Malformed requests that are made together.
_PROBE_GROUPS = {
    "bodies": ("no_json", "invalid_utf8", "json_list", "huge_body"),
    "messages": ("no_messages", "messages_", "message_", "content_"),
    "numbers": ("zero_", "negative_", "max_", "temperature_", "top_"),
    "fields": ("logit_bias_", "stream_"),
    "media": ("no_image", "no_base64"),
    "model": ("unknown_model",),
    "stop_number": ("stop_number",),
    "stop_of_numbers": ("stop_of_numbers",),
}


def malformed(brief: Brief) -> list[Schedule]:
    """Each group of malformed requests comes while right ones decode, and one comes after."""
    schedules = []
    for name, prefixes in _PROBE_GROUPS.items():
        kinds = [kind for kind in brief.probes if kind.startswith(prefixes)]
        rows = [text_request(brief, f"r{n}", n, max_tokens=4 * ANSWER) for n in (SHORT, MEDIUM)]
        after = text_request(brief, "next", TWO, max_tokens=4)
        schedules.append(
            Schedule(
                name,
                (together(*rows), Arrival((after,), gone(f"r{MEDIUM}"))),
                probes=tuple(Probe(kind, produced(f"r{SHORT}", 1)) for kind in kinds),
            )
        )
    return schedules


def probed(trace: Trace) -> bool:
    """Whether a malformed request was sent."""
    return any(step.probes for step in trace.steps)
