"""Whether a library quantizes alike in a single stream and in a batch, and how much it saves."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec
import numpy as np

from conformance.checks.forced import common_steps
from conformance.checks.play import Play
from conformance.core import numerics
from conformance.core.numerics import Deviation, Envelope
from conformance.core.trace import Failure, Trace
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


# For float32 keys, 8 bits with a float32 scale and bias for each 64 elements take 9 bits of 32,
# which is the published factor 3.6; 4 bits take 5, a factor of 6.4. In float16, scales and biases
# are smaller, too: 8.5 and 4.5 bits of 16, factors of 1.9 and 3.6.
@dataclass(frozen=True)
class Shares:
    """Bytes of quantized caches divided by those of unquantized ones.

    Attributes:
        whole: the ratio over all layers.
        quantized: the ratio over the layers that were quantized.
    """

    whole: float
    quantized: float


def cache_shares(trace: Trace, plain: Trace) -> Shares | None:
    """Cache bytes of a run divided by those of an equal run without quantization.

    Uses the step with the most unquantized bytes.

    Returns: ``None`` if the engine does not report bytes, or nothing was quantized by then.
    """
    pairs = [
        (mine.layers, theirs.layers)
        for mine, theirs in zip(trace.steps, plain.steps, strict=False)
        if mine.layers and len(mine.layers) == len(theirs.layers)
    ]
    if not pairs:
        return None
    mine, theirs = max(pairs, key=lambda pair: sum(layer.nbytes for layer in pair[1]))
    before = [layer.nbytes for layer in theirs]
    after = [layer.nbytes for layer in mine]
    chosen = [index for index, layer in enumerate(mine) if layer.quantized]
    base = sum(before[index] for index in chosen)
    if not base:
        return None
    return Shares(sum(after) / sum(before), sum(after[index] for index in chosen) / base)
