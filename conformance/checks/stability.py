"""The same run twice gives the same bits, or memory was read that nobody wrote."""

from __future__ import annotations

import numpy as np

from conformance.checks.base import Play
from conformance.trace import Trace
from conformance.verdict import Finding, Verdict


def same_bits(play: Play, first: Trace, second: Trace) -> bool:
    """Whether two runs gave every request the same tokens with bit-identical logprobs."""
    return _difference(play, first, second) is None


def check_stability(play: Play) -> list[Finding]:
    """``unstable`` where a run and its repetition differ by more than the noise floor.

    The repetition is the last of three runs; it is only made where the first two differ.
    """
    if len(play.traces) < 3:
        return []
    first, again = play.traces[0], play.traces[-1]
    if first.failure is not None or again.failure is not None:
        return []
    found = _difference(play, first, again)
    if found is None:
        return []
    name, step, difference = found
    noise = float(play.floor(name).full[0])
    if difference <= noise:
        return []
    return [
        Finding(
            Verdict.UNSTABLE,
            "stability",
            f"the same run twice differs by {difference:.3g} nats at output token {step}",
            schedule=play.schedule.name,
            mode=first.mode,
            request_id=name,
            step=step,
            row=play.row(first, name, step),
            expected="the same numbers",
            got=f"{difference:.3g} nats apart",
            difference=difference,
            noise=noise,
            cause="memory was read that nobody wrote, or an index ran past an array's end",
        )
    ]


def _difference(play: Play, first: Trace, second: Trace) -> tuple[str, int, float] | None:
    for request in play.schedule.requests:
        name = request.request_id
        one, two = first.stream(name), second.stream(name)
        mine = one.logprobs if one.logprobs is not None else one.token_logprobs
        theirs = two.logprobs if two.logprobs is not None else two.token_logprobs
        if one.tokens != two.tokens or mine is None or theirs is None:
            if one.tokens == two.tokens:
                continue
            pairs = zip(one.tokens, two.tokens, strict=False)
            step = next((i for i, (a, b) in enumerate(pairs) if a != b), 0)
            return name, step, float("inf")
        if not np.array_equal(mine, theirs, equal_nan=True):
            with np.errstate(invalid="ignore"):
                delta = np.abs(mine - theirs).reshape(len(mine), -1)
            delta = np.where(np.isnan(delta), np.inf, delta).max(axis=-1)
            step = int((delta > 0).argmax())
            return name, step, float(delta.max())
    return None
