"""Reads an answer: its tokens, its finish reason, and the stop sequence that ended it."""

from __future__ import annotations

from conformance.core.schedule import Request
from conformance.core.trace import FinishReason
from conformance.plugins.servers.asking import Answer

Tokens = list[tuple[int, float | None]]
"""The tokens of an answer, with the logprob that the server reports for each."""


_CALLED = "tool_calls"


class ServerFailedError(RuntimeError):
    """A server refused a valid request, or broke off its answer."""


def reason_of(answer: Answer) -> FinishReason | None:
    """The finish reason of the answer; ``None`` if it is none that is known."""
    if answer.reason == _CALLED:  # it ended as it would have without the call
        return FinishReason.LENGTH
    return next((reason for reason in FinishReason if reason == answer.reason), None)


def stopped_at(request: Request) -> tuple[int, ...]:
    """The stop sequence, which the answer leaves out; empty if there are several."""
    return request.stop[0] if len(request.stop) == 1 else ()
