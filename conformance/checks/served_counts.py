"""What a server's steps took, which its own process noted: counts of contracts.

When a client sees a token and when a server made it are two things. So these counts hang on the
order of the server's own steps alone.
"""

from __future__ import annotations

from conformance.checks.play import Play
from conformance.core.forward_calls import ServedStep
from conformance.core.trace import Trace


def prefilled(play: Play, trace: Trace) -> float | None:
    """Positions of pieces over those of the prompts; ``None`` unless some were taken together.

    Of a prompt the last token is a piece by itself, as a decode step is.
    """
    pieces = [call for step in trace.served for call in step.forwards if call.length > 1]
    if max((call.batch for call in pieces), default=0) < 2:
        return None
    prompts = sum(len(request.prompt) - 1 for request in play.schedule.requests)
    return sum(call.positions for call in pieces) / prompts


def beside_late(trace: Trace) -> list[ServedStep]:
    """The steps from the first piece of a prompt beside a row that decodes to its first token."""
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
    """Those of the steps in which no row got a token."""
    return sum(not _decodes(step) for step in steps)


def most_beside(steps: list[ServedStep]) -> int:
    """The most calls of the model in one of the steps beside that of the rows that decode."""
    return max((len(step.forwards) - 1 for step in steps), default=0)


def share_for_nobody(play: Play, trace: Trace) -> float | None:
    """Of the tokens that were still to come when a client left, those that were computed.

    The engine's own row and the one that is gone have all slots: until the next prompt is begun,
    what is more than one row is computed for nobody.
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
