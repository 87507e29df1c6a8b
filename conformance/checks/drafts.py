"""A model that drafts for itself must accept its own drafts, or its draft pass is wrong.

Drafts never change the output, so no other check detects a draft model whose caches, lengths or
positions are wrong: its drafts are only rejected more often, and each rejected token is wasted
work.
"""

from __future__ import annotations

from conformance.checks.play import Play
from conformance.core import numerics
from conformance.core.trace import Trace
from conformance.core.verdict import Finding, Verdict

# The kind of drafter that is the model itself, if an engine gets no other model.
ITSELF = "draft_model"


def check_drafts(play: Play) -> list[Finding]:
    """``drift`` for each greedy request with a rejected draft that was not a tie.

    Only if the schedule does not change the drafts. Processors run after drafting, so requests with
    processors are skipped.
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
    count = 0
    for step in trace.steps:
        mine = [event for event in step.output.events if event.request_id == name]
        count += len(mine)
        tokens = trace.stream(name).tokens[:count]
        if tokens != want.tokens[:count]:  # a different text: the oracle's margins do not apply
            return None
        drafted = step.output.drafted.get(name, 0)
        if not mine or mine[-1].finish_reason is not None or len(mine) > drafted:
            continue
        margin = float(numerics.margins(want.logprobs[count - 1 : count])[0])
        noise = float(play.envelope(name).top[count - 1])
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
            step=count - 1,
            row=play.row(trace, name, count - 1),
            expected="a draft that is accepted whole",
            got=f"output token {count - 1} was not drafted",
            margin=margin,
            noise=noise,
        )
    return None
