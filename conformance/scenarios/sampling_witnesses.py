"""Witnesses about rows with samplers and processors."""

from __future__ import annotations

import numpy as np

from conformance.core.schedule import Stage
from conformance.core.trace import Trace


def joined_either_way(trace: Trace) -> bool:
    """Whether a row with its own processors decoded together with one that has the engine's."""
    options = trace.schedule.options
    names = {r.request_id: r.processors != options.processors for r in trace.schedule.requests}
    for step in trace.steps:
        if len({names[name] for name in step.in_stage(Stage.DECODE)}) > 1:
            return bool(options.processors)
    return False


def chose_second(trace: Trace) -> bool:
    """Whether the engine's sampler took a token other than the likeliest."""
    options = trace.schedule.options
    own = {r.request_id for r in trace.schedule.requests if r.sampler == options.sampler}
    return options.sampler is not None and any(
        event.request_id in own
        and event.logprobs is not None
        and event.token != int(np.argmax(event.logprobs))
        for step in trace.steps
        for event in step.output.events
    )


def last_processor_left(trace: Trace) -> bool:
    """Whether a row with processors decoded next to a row that had seen all others leave."""
    has = {r.request_id for r in trace.schedule.requests if r.processors}
    decoding = [set(step.in_stage(Stage.DECODE)) for step in trace.steps]
    for index, rows in enumerate(decoding):
        before = any(rows & earlier and earlier & has for earlier in decoding[:index])
        after = any(rows & later and later & has for later in decoding[index + 1 :])
        if rows and not rows & has and before and after:
            return True
    return False


def plain_left(trace: Trace) -> bool:
    """Whether a row with processors joined rows that had seen one without leave, and none with."""
    has = {r.request_id for r in trace.schedule.requests if r.processors}
    decoding = [set(step.in_stage(Stage.DECODE)) for step in trace.steps]
    for index, rows in enumerate(decoding):
        if rows & has:
            earlier = decoding[:index]
            return any(before & rows and before - rows for before in earlier)
    return False


def history_of(count: int, trace: Trace) -> bool:
    """Whether a row with processors came to have more than ``count`` tokens while it decoded."""
    return any(
        request.processors
        and len(request.prompt) <= count < len(request.prompt) + len(stream.tokens)
        for request in trace.schedule.requests
        if (stream := trace.stream(request.request_id))
    )
