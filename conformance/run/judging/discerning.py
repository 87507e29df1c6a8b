"""Whether the single stream distinguishes prompts, and so a right batch from a wrong one.

An engine's error in a row shows if the row then has a wrong context. So the single stream is
computed with another context: a model whose result stays the same proves nothing.
"""

from __future__ import annotations

import dataclasses

import msgspec

from conformance.core import numerics
from conformance.core.errors import Unsupported
from conformance.core.schedule import Request
from conformance.core.sensitivity import RATIO_WANTED
from conformance.core.verdict import Finding, Verdict
from conformance.reference.subject import Subject
from conformance.run.judging.judge import Outcome
from conformance.scenarios import Brief
from conformance.scenarios.build import MEDIUM, text_request

CHECK = "sensitivity"


def needed(dtype: str) -> float:
    """The ratio to noise by which another context must move the logprobs.

    Even in half precision, correct models have at least 20; below ``FACTOR`` the other context's
    logprobs would pass as right. Correct models in float32 have a million.
    """
    return RATIO_WANTED if dtype == "float32" else numerics.FACTOR


def discerning(outcome: Outcome, subject: Subject, brief: Brief) -> Outcome:
    """The outcome; ``vacuous`` if all is right but the single stream distinguishes nothing."""
    if not outcome.verdict.good:
        return outcome
    try:
        found = indiscernible(subject, brief)
    except Unsupported:  # a server that has reached its limit of requests
        return outcome
    if found is None:
        return outcome
    return dataclasses.replace(outcome, findings=(*outcome.findings, found))


def indiscernible(subject: Subject, brief: Brief) -> Finding | None:
    """A finding if another context moves the logprobs hardly more than rounding does."""
    assert subject.origin is not None, "it was loaded"
    request = text_request(brief, "sensitivity", MEDIUM)
    with subject.phases("single stream"):
        found = subject.oracle.apart(request, in_other_context(request, brief.tokens))
    ratio, least = float(found.ratio.max()), needed(subject.origin.dtype)
    if not ratio < least:
        return None
    nats = float(found.difference.max())
    return Finding(
        Verdict.VACUOUS,
        CHECK,
        f"measured sensitivity: another prompt moves the single stream's logprobs by {nats:.3g} "
        f"nats, {ratio:.3g} times the noise",
        request_id=request.request_id,
        expected=f"{least:g} times the noise at least",
        got=f"{ratio:.3g} times",
        difference=nats,
        noise=nats / ratio if ratio else None,
        ratio=ratio,
        cause="the model hardly depends on its input (logits that are constant or tiny, a layer of "
        "zeros), so nothing that a batch does wrong can show; `conformance audit calibrate` says "
        "more of a family",
    )


def in_other_context(request: Request, tokens: tuple[int, int]) -> Request:
    """The request with each text token but the last replaced by the next token of its range."""
    low, high = tokens
    of_media = {index for media in request.media for index in range(*media.span)}
    *before, last = request.prompt
    moved = (
        token if index in of_media else low + (token + 1 - low) % (high - low)
        for index, token in enumerate(before)
    )
    return msgspec.structs.replace(request, prompt=(*moved, last))
