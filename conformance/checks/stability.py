"""The same run twice must give the same bits; otherwise uninitialized memory was read."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from conformance.checks.play import Play
from conformance.core.trace import Trace
from conformance.core.verdict import Finding, Verdict


def same_bits(play: Play, first: Trace, second: Trace) -> bool:
    """Whether two runs gave every request the same tokens and bit-identical logprobs."""
    return not any(_differences(play, first, second))


def check_stability(play: Play) -> list[Finding]:
    """``unstable`` if a run and its repetition differ by more than the noise floor.

    The repetition is the last of three runs; it is made only if the first two differ.
    """
    if len(play.traces) < 3:
        return []
    first, again = play.traces[0], play.traces[-1]
    if first.failure is not None or again.failure is not None:
        return []
    for name, step, difference in _differences(play, first, again):
        noise = float(play.floor(name).full[0])
        if difference > noise:
            return [_finding(play, first, (name, step), difference=difference, noise=noise)]
    return []


def _finding(
    play: Play, trace: Trace, at: tuple[str, int], *, difference: float, noise: float
) -> Finding:
    name, step = at
    return Finding(
        Verdict.UNSTABLE,
        "stability",
        f"the same run twice differs by {difference:.3g} nats at output token {step}",
        schedule=play.schedule.name,
        mode=trace.mode,
        request_id=name,
        step=step,
        row=play.row(trace, name, step),
        expected="the same numbers",
        got=f"{difference:.3g} nats apart",
        difference=difference,
        noise=noise,
        cause="uninitialized memory was read, or an index ran past an array's end",
    )


def _differences(play: Play, first: Trace, second: Trace) -> Iterator[tuple[str, int, float]]:
    """Each request that differs, with its first different step and its largest difference."""
    for request in play.schedule.requests:
        name = request.request_id
        one, two = first.stream(name), second.stream(name)
        if one.tokens != two.tokens:
            pairs = zip(one.tokens, two.tokens, strict=False)
            yield name, next((i for i, (a, b) in enumerate(pairs) if a != b), 0), float("inf")
            continue
        whole = one.logprobs is not None and two.logprobs is not None
        mine = one.logprobs if whole else one.token_logprobs
        theirs = two.logprobs if whole else two.token_logprobs
        if mine is None or theirs is None or np.array_equal(mine, theirs, equal_nan=True):
            continue
        with np.errstate(invalid="ignore"):
            delta = np.abs(mine - theirs).reshape(len(mine), -1)
        alike = np.reshape((mine == theirs) | (np.isnan(mine) & np.isnan(theirs)), delta.shape)
        delta = np.where(alike, 0.0, np.where(np.isnan(delta), np.inf, delta)).max(axis=-1)
        yield name, int((delta > 0).argmax()), float(delta.max())
