"""Whether a library quantizes in the same way in a single stream and in a batch."""

from __future__ import annotations

import msgspec
import numpy as np

from conformance.checks.forced import common_steps
from conformance.checks.play import Play
from conformance.core import numerics
from conformance.core.numerics import Deviation, Envelope
from conformance.core.trace import Failure
from conformance.core.verdict import Finding, Verdict

_CAUSE = "the single stream quantizes other layers, or from another token on, than a batch of one"


def check_policy(play: Play) -> list[Finding]:
    """``policy`` if the library's own single stream differs from its batch of one.

    Both have the same options. The other checks compare the batch of one with an oracle that
    quantizes in the same way; this finding is a difference in policy, not an error of either.
    """
    trace, own = play.traces[0], play.policy
    if own is None or trace.failure is not None:
        return []
    (request,) = play.schedule.requests
    name = request.request_id
    if isinstance(own, Failure):
        what = f"a batch of one decodes what the library's single stream does not: {own}"
        return [_finding(play, what, f"{own.type_name}: {own.message}")]
    got = trace.stream(name)
    if got.logprobs is None:
        return []
    steps = min(common_steps(got, play.want[name]), len(own))
    if not steps:
        return []
    found, noise = _deviation(play, name, own[:steps], got.logprobs[:steps])
    if found.within_noise:
        return []
    step = found.first_bad_step or 0
    difference = float(found.difference[step])
    what = (
        f"the library's own single stream and its batch of one are {difference:.3g} nats apart "
        f"at output token {step}, {found.ratio[step]:.3g} times the noise"
    )
    finding = _finding(play, what, f"{difference:.6g} nats apart")
    noisy = float(noise.full[step])
    return [msgspec.structs.replace(finding, step=step, difference=difference, noise=noisy)]


def _deviation(
    play: Play, name: str, own: np.ndarray, batch: np.ndarray
) -> tuple[Deviation, Envelope]:
    return numerics.settle(
        lambda noise: numerics.deviation(own, batch, noise),
        play.floor(name),
        play.wider(name, len(own)),
    )


def _finding(play: Play, what: str, got: str) -> Finding:
    (request,) = play.schedule.requests
    return Finding(
        Verdict.POLICY,
        "policy",
        what,
        schedule=play.schedule.name,
        mode=play.traces[0].mode,
        request_id=request.request_id,
        expected="the same up to rounding",
        got=got,
        cause=_CAUSE,
    )
