"""Counts for contracts from the steps that a server's own process recorded.

A client may see a token later than the server generated it. These counts therefore depend only on
the order of the server's own steps.
"""

from __future__ import annotations

from conformance.checks.play import Play
from conformance.core.forward_calls import ServedStep
from conformance.core.trace import Trace


def prefilled(play: Play, trace: Trace) -> float | None:
    """Positions of pieces divided by those of the prompts; ``None`` unless pieces shared a pass.

    The last token of a prompt is a piece by itself, like a decode step.
    """
    pieces = [call for step in trace.served for call in step.forwards if call.length > 1]
    if max((call.batch for call in pieces), default=0) < 2:
        return None
    prompts = sum(len(request.prompt) - 1 for request in play.schedule.requests)
    return sum(call.positions for call in pieces) / prompts


def beside_late(trace: Trace) -> list[ServedStep]:
    """The steps from a prompt's first piece next to a decoding row to its first token."""
    found: list[ServedStep] = []
    for step in trace.served:
        piece = any(call.length > 1 for call in step.forwards)
        if found or (piece and _decodes(step)):
            found.append(step)
            if any(call.batch > 1 for call in step.forwards):
                break
    return found


def _decodes(step: ServedStep) -> bool:
    return any(call.length == 1 for call in step.forwards)


def waited(steps: list[ServedStep]) -> int:
    """How many of the steps gave no row a token."""
    return sum(not _decodes(step) for step in steps)


def most_beside(steps: list[ServedStep]) -> int:
    """The most model calls in one of the steps, besides the call for the decoding rows."""
    return max((len(step.forwards) - 1 for step in steps), default=0)


def share_for_nobody(play: Play, trace: Trace) -> float | None:
    """The share of a departed client's remaining tokens that were still computed.

    The engine's own row and the departed one have all slots: until the next prompt begins, any work
    for more than one row is wasted.
    """
    gone = [name for step in trace.steps for name in step.removed_from]
    steps = [step for step in trace.served if step.left]
    if not gone or not steps:
        return None
    computed = 0
    for step in steps:
        if any(call.length > 1 for call in step.forwards):
            break
        computed += sum(call.batch for call in step.forwards) - 1
    (request,) = (r for r in play.schedule.requests if r.request_id == gone[0])
    return max(computed, 0) / (request.max_tokens - len(trace.events(gone[0])))
