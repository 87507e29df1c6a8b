"""The scale of logprobs against the single stream's, in groups of rows and steps.

Rounding moves each logprob by itself, so that the scale of all of them together is right to a small
part of an ulp, now too large and now too small. A scale that is wrong in each fourth row, in odd
steps or in wide batches is wrong in one direction there.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

import numpy as np

from conformance.checks.forced import common_steps, other_history
from conformance.checks.play import Play
from conformance.core.trace import Trace

# Requests that a group has, at least, and how often chance may make a group as far off as found: of
# 340 families, three schedules, two dtypes and the groups below, less than once in a million runs.
_REQUESTS, _CHANCE = 6, 1e-12
# Scales nearer to one are no defect: an eighth of an ulp.
_LEAST = {"bfloat16": 2.0**-11, "float16": 2.0**-14}
_PLACES, _MANY = (2, 4), 8


def scales_off(play: Play, trace: Trace) -> Iterator[tuple[str, float, int]]:
    """Groups whose scale is off: the name, by which part of the scale, and the requests in it."""
    for group, found in _by_group(play, trace).items():
        means = np.array([np.mean(own) for own in found.values()])
        if len(means) < _REQUESTS or not np.isfinite(means).all():
            continue
        off, spread = float(means.mean()), float(means.std(ddof=1))
        far = abs(off) * np.sqrt(len(means)) > spread * _limit(len(means) - 1)
        if far and abs(off) > _LEAST[play.dtype]:
            yield group, off, len(means)


def _by_group(play: Play, trace: Trace) -> dict[str, dict[tuple[int, ...], list[float]]]:
    """The errors of the scale by group and, within it, by prompt; equal prompts are one request."""
    found: dict[str, dict[tuple[int, ...], list[float]]] = defaultdict(lambda: defaultdict(list))
    scales = dict(_scales(play, trace))
    count: dict[str, int] = defaultdict(int)
    rows: dict[str, int] = {}
    width = 0
    for moment in trace.steps:
        for event in moment.output.events:
            name = event.request_id
            step, count[name] = count[name], count[name] + 1
            if step >= len(scales.get(name, ())):
                continue
            prompt = play.schedule.request(name).prompt
            # What is given out now may be of the pass before, in which rows had other places.
            before = (rows[name], width) if name in rows else None
            for group in _groups(len(prompt) + step, step, moment.rows.get(name), before):
                found[group][prompt].append(scales[name][step])
        rows, width = dict(moment.rows), len(moment.rows)
    return found


def _groups(
    position: int, step: int, place: int | None, before: tuple[int, int] | None
) -> Iterator[str]:
    yield "all rows"
    yield f"{'odd' if position % 2 else 'even'} positions"
    yield f"{'odd' if step % 2 else 'even'} output tokens"
    if place is not None:
        yield from (f"rows {place % size} of {size}" for size in _PLACES)
    if before is not None:
        place, width = before
        yield from (f"rows {place % size} of {size} of the step before" for size in _PLACES)
        yield f"batches of {'many' if width > _MANY else 'few'} rows"
        if place >= _MANY:
            yield "rows past the eighth"


def _scales(play: Play, trace: Trace) -> Iterator[tuple[str, np.ndarray]]:
    """By request, for each step by which part its logprobs are spread too far ``[steps]``."""
    for request in play.schedule.requests:
        name = request.request_id
        got, want = trace.stream(name), play.want[name]
        steps = common_steps(got, want)
        if not steps or got.logprobs is None or other_history(play, trace, name):
            continue
        assert want.logprobs is not None
        theirs = want.logprobs[:steps].astype(np.float64)
        usual = np.isfinite(theirs) & np.isfinite(got.logprobs[:steps])
        spread = np.where(usual, theirs, 0.0)
        spread -= spread.sum(axis=-1, keepdims=True) / usual.sum(axis=-1, keepdims=True)
        spread = np.where(usual, spread, 0.0)
        moved = np.where(usual, got.logprobs[:steps].astype(np.float64) - theirs, 0.0)
        yield name, (moved * spread).sum(axis=-1) / np.maximum((spread**2).sum(axis=-1), 1e-12)


def _limit(freedom: int) -> float:
    """The value that Student's t exceeds in either direction with a probability of ``_CHANCE``."""
    low, high = 1.0, 1e13
    angles = np.linspace(0.0, np.pi / 2, 20_001)
    whole = float((np.sin(angles) ** (freedom - 1)).mean()) * np.pi / 2
    while high / low > 1.01:
        middle = float(np.sqrt(low * high))
        part = np.linspace(0.0, np.arctan(np.sqrt(freedom) / middle), 201)
        tail = float((np.sin(part) ** (freedom - 1)).mean()) * part[-1]
        low, high = (middle, high) if tail / whole > _CHANCE else (low, middle)
    return high
