"""How an answer is read: its tokens, why it ended, what ended it."""

from __future__ import annotations

from conformance.core.schedule import Request
from conformance.core.trace import FinishReason
from conformance.plugins.servers.asking import Answer

Tokens = list[tuple[int, float | None]]
"""Those of an answer, with the logprob that the server says of each."""


_CALLED = "tool_calls"


class ServerFailedError(RuntimeError):
    """A server refused a right request, or broke off."""


def reason_of(answer: Answer) -> FinishReason | None:
    """Why the answer ended, if that is one of the reasons that there are."""
    if answer.reason == _CALLED:  # it ended as it would have without its call
        return FinishReason.LENGTH
    return next((reason for reason in FinishReason if reason == answer.reason), None)


def stopped_at(request: Request) -> tuple[int, ...]:
    """The stop sequence, which an answer leaves out; where there are several, none is known."""
    return request.stop[0] if len(request.stop) == 1 else ()
