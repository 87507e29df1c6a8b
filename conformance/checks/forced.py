"""The forced run: every row was fed the oracle's tokens, so the logprobs of all steps compare."""

from __future__ import annotations

import numpy as np

from conformance.checks.play import Play
from conformance.core import numerics
from conformance.core.numerics import Deviation, Envelope
from conformance.core.trace import Mode, Stream, Trace
from conformance.core.verdict import Finding, Verdict


def check_forced(play: Play) -> list[Finding]:
    """``drift`` for each request whose logprobs leave the noise.

    Free runs are checked, too, as long as their tokens are the oracle's: the default sampler may
    take another path through the engine.
    """
    findings = []
    for trace in play.traces[:2]:
        for request in play.schedule.requests:
            found = measure(play, trace, request.request_id)
            if found is None or found[0].within_noise:
                continue
            findings.append(_finding(play, trace, request.request_id, *found))
    return findings


def measure(play: Play, trace: Trace, request_id: str) -> tuple[Deviation, Envelope] | None:
    """The deviation of a request's logprobs from the oracle's; ``None`` if none are comparable.

    The noise is measured only if the floor does not already explain the difference.
    """
    got, want = trace.stream(request_id), play.want[request_id]
    steps = common_steps(got, want)
    if (
        steps == 0
        or other_history(play, trace, request_id)
        or (got.logprobs is None and got.token_logprobs is None)
    ):
        return None
    return numerics.settle(
        lambda noise: _deviation(got, want, steps, noise),
        play.floor(request_id),
        play.wider(request_id, steps),
    )


def other_history(play: Play, trace: Trace, request_id: str) -> bool:
    """Whether the request continues one with wrong tokens, which are reported there."""
    source = play.schedule.request(request_id).continues
    if source is None or trace.mode is Mode.FORCED:
        return False
    got, want = trace.stream(source.request_id), play.want[source.request_id]
    return any(mine != theirs for mine, theirs in zip(got.tokens, want.tokens, strict=False))


def common_steps(got: Stream, want: Stream) -> int:
    """Number of steps with the same history: up to and including the first different token."""
    for step, (mine, theirs) in enumerate(zip(got.tokens, want.tokens, strict=False)):
        if mine != theirs:
            return step + 1
    return min(len(got.tokens), len(want.tokens))


def _deviation(got: Stream, want: Stream, steps: int, noise: Envelope) -> Deviation:
    assert want.logprobs is not None
    if got.logprobs is not None:
        return numerics.deviation(got.logprobs[:steps], want.logprobs[:steps], noise)
    # Only the chosen token's logprob is known: a vocabulary of one.
    assert got.token_logprobs is not None
    chosen = np.array(got.tokens[:steps])[:, None]
    theirs = np.take_along_axis(want.logprobs[:steps], chosen, axis=-1)  # [steps, 1]
    return numerics.deviation(got.token_logprobs[:steps, None], theirs, noise)


def _finding(play: Play, trace: Trace, name: str, found: Deviation, noise: Envelope) -> Finding:
    step = found.first_bad_step
    assert step is not None
    want = play.want[name]
    assert want.logprobs is not None
    margin = float(numerics.margins(want.logprobs[step : step + 1])[0])
    forced = trace.mode is Mode.FORCED
    return Finding(
        Verdict.DRIFT,
        "forced",
        f"logprobs are {found.difference[step]:.3g} nats off at output token {step}, "
        f"{found.ratio[step]:.3g} times the noise"
        f" (worst: {found.difference[found.worst_step]:.3g} at token {found.worst_step})",
        schedule=play.schedule.name,
        mode=trace.mode,
        request_id=name,
        step=step,
        row=play.row(trace, name, step),
        expected="the single stream's logprobs" + (" at the fed tokens" if forced else ""),
        got=f"{found.difference[step]:.6g} nats off",
        margin=margin,
        difference=float(found.difference[step]),
        noise=float(noise.full[step]),
        ratio=float(found.ratio[found.worst_step]),
    )
