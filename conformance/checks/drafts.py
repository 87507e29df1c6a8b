"""Drafts of a model that drafts for itself: it foresees what it then says, or its drafts are wrong.

Drafts never change what comes out, so nothing else tells a draft model whose caches, lengths or
positions are off: it only guesses worse, and every rejected token is a pass for nothing.
"""

from __future__ import annotations

from conformance.checks.base import Play
from conformance.core import numerics
from conformance.core.trace import Trace
from conformance.core.verdict import Finding, Verdict

# The kind of drafter that is the model itself where an engine is given no other.
ITSELF = "draft_model"


def check_drafts(play: Play) -> list[Finding]:
    """``drift`` for each greedy request of which a draft was rejected that was no tie.

    Only where the schedule leaves the drafts as they are. Processors are asked after the draft was
    made, so requests that have some are left out.
    """
    drafting = play.schedule.options.drafting
    if drafting is None or drafting.kind != ITSELF or drafting.right:
        return []
    return [
        finding
        for trace in play.traces
        for request in play.schedule.requests
        if not request.sampler and not request.processors
        if (finding := _first_rejected(play, trace, request.request_id)) is not None
    ]


def _first_rejected(play: Play, trace: Trace, name: str) -> Finding | None:
    want = play.want[name]
    assert want.logprobs is not None
    said = 0
    for step in trace.steps:
        mine = [event for event in step.output.events if event.request_id == name]
        said += len(mine)
        tokens = trace.stream(name).tokens[:said]
        if tokens != want.tokens[:said]:  # another text: the oracle's margins say nothing of it
            return None
        drafted = step.output.drafted.get(name, 0)
        if not mine or mine[-1].finish_reason is not None or len(mine) > drafted:
            continue
        margin = float(numerics.margins(want.logprobs[said - 1 : said])[0])
        noise = float(play.envelope(name).top[said - 1])
        if margin <= 2 * numerics.FACTOR * noise:
            continue
        return Finding(
            Verdict.DRIFT,
            "drafts",
            f"of a draft of {drafted} tokens {len(mine) - 1} were right, "
            f"and the model drafts for itself",
            schedule=play.schedule.name,
            mode=trace.mode,
            request_id=name,
            step=said - 1,
            row=play.row(trace, name, said - 1),
            expected="a draft that is accepted whole",
            got=f"output token {said - 1} was not foreseen",
            margin=margin,
            noise=noise,
        )
    return None
