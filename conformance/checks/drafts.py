"""A drafter must propose for each row what it proposes for the row alone.

Drafts never change the output, so no other check detects a drafter that goes on from the state of
another row, or whose caches, lengths or positions are wrong: its drafts are only rejected more
often, and each rejected token is wasted work. A model that drafts for itself must accept its own.
"""

from __future__ import annotations

from conformance.checks.play import Play
from conformance.core import numerics
from conformance.core.rounds import differs_at, rounds_of
from conformance.core.trace import Trace
from conformance.core.verdict import Finding, Verdict

# The kind of drafter that is the model itself, if an engine gets no other model.
ITSELF = "draft_model"


def check_drafts(play: Play) -> list[Finding]:
    """``drift`` for greedy requests whose drafts are wrong, and not by a tie.

    If the schedule compares drafts, the first that differs from those of the row alone. If the
    model drafts for itself and the schedule leaves its drafts as they are, rejected ones;
    processors run after drafting, so requests with processors are skipped.
    """
    drafting = play.schedule.options.drafting
    if drafting is None:
        return []
    greedy = [r for r in play.schedule.requests if not r.sampler]
    found: list[Finding | None] = []
    if drafting.compared:
        # One row is enough: others take as many runs, and mostly have the same cause.
        others = (_first_other(play, t, r.request_id) for t in play.traces[:1] for r in greedy)
        found.append(next((finding for finding in others if finding is not None), None))
    if drafting.kind == ITSELF and not drafting.right:
        plain = [r.request_id for r in greedy if not r.processors]
        found += [_first_rejected(play, trace, name) for trace in play.traces for name in plain]
    return [finding for finding in found if finding is not None]


def _first_other(play: Play, trace: Trace, name: str) -> Finding | None:
    """The first draft that differs from the one for the row alone."""
    tokens = trace.stream(name).tokens
    if trace.failure is not None or tokens != play.want[name].tokens[: len(tokens)]:
        return None
    plain, *perturbed = play.drafted_alone(trace, name) or ((),)
    mine = tuple(rounds_of(trace, name))
    place = differs_at(mine, plain)
    moved = (differs_at(run, plain) for run in perturbed)
    if place is None or any(other is not None and other <= place for other in moved):
        return None
    number, _ = place
    step = mine[number].start
    return Finding(
        Verdict.DRIFT,
        "drafts",
        f"draft {number} of the row is another one than the same drafter makes for the row alone: "
        "the drafter goes on from a wrong state",
        schedule=play.schedule.name,
        mode=trace.mode,
        request_id=name,
        step=step,
        row=play.row(trace, name, step),
        expected=f"the draft {plain[number].proposed}",
        got=f"the draft {mine[number].proposed}",
    )


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
