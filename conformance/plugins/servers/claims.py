"""What a server says of its answers, beside what was counted and measured."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from conformance.core.schedule import Request
from conformance.core.trace import Claim, FinishReason
from conformance.plugins.servers.asking import Answer, Came

# A server that goes on for a client that left makes the next one wait for all of its answer. One
# that notices looks up from its work twice a second, say.
_PART = 0.5
_LEAST_SECONDS = 2.0
# Who joins a long answer may wait for some of it: servers look for requests now and then.
_LONG, _STARVED = 200, 0.9


def about_answer(
    request: Request, answer: Answer, prompt_tokens: int | None, count: int | None
) -> Iterator[Claim]:
    """Its counts of tokens, why it ended, and that one answer has one id.

    Args:
        prompt_tokens: of the prompt, and ``count`` of the answer's text, where they are known.
    """
    reasons = " or ".join(FinishReason)
    holds = answer.reason in set(FinishReason)
    yield Claim("finish_reason", str(answer.reason), reasons, holds)
    yield Claim("ids of one answer", str(len(answer.ids)), "1", len(answer.ids) == 1)
    if not answer.usage:
        yield Claim("usage", "nothing", "counts of tokens", holds=False)
        return
    prompt, completion, total = (
        answer.usage.get(f"{name}_tokens") for name in ("prompt", "completion", "total")
    )
    if count is not None:
        # What ended the answer is not in its text: some count it, and some do not.
        holds = completion in {count, count + _ending(request, answer)}
        yield Claim("usage.completion_tokens", str(completion), str(count), holds)
    if prompt_tokens is not None:
        holds = prompt == prompt_tokens
        yield Claim("usage.prompt_tokens", str(prompt), str(prompt_tokens), holds)
    right = (prompt or 0) + (completion or 0)
    yield Claim("usage.total_tokens", str(total), str(right), total == right)


def _ending(request: Request, answer: Answer) -> int:
    """Tokens of what ended an answer before its limit: a stop sequence, or an end of its own."""
    if answer.reason != FinishReason.STOP:
        return 0
    return len(request.stop[0]) if request.stop else 1


def waited_for(count: int, rest: int, seconds: float) -> Claim:
    """That a request which joins does not wait for the end of an answer that it found at work.

    Args:
        count: tokens of that answer which came before the first of the request.
        rest: tokens that it still had when the request came.
        seconds: from the request to its first token.
    """
    holds = rest < _LONG or count < _STARVED * rest or seconds < _LEAST_SECONDS
    return Claim("tokens of an answer that a joining request waited for", str(count), "few", holds)


def same_text(streamed: Answer, again: Came) -> Iterator[Claim]:
    """The text of an answer in many pieces is that of the same one in one piece."""
    one, many = again.answer.text, streamed.text
    holds = not again.error and one.strip() == many.strip()
    found = again.error or repr(_apart(one, many))
    yield Claim("the text of a stream", repr(_apart(many, one)), found, holds)


def _apart(text: str, other: str) -> str:
    """What of a text begins where it differs from another, not all of it."""
    at = next((i for i, (a, b) in enumerate(zip(text, other, strict=False)) if a != b), None)
    return text[max(0, (min(len(text), len(other)) if at is None else at) - 8) :][:40]


def about_work(
    left: Mapping[str, Answer], after: Answer, requests: Mapping[str, Request]
) -> Iterator[Claim]:
    """Whether the server went on for clients that had left, by how long the next one waited.

    Only of a client that left in the middle of a long answer: how long a token takes is known, so
    that what the rest would have taken is.
    """
    for name, answer in left.items():
        done = len(answer.text.split())
        if answer.first is None or done < 2 or after.first is None:
            continue
        a_token = (answer.last - answer.first) / (done - 1)
        rest = (requests[name].max_tokens - done) * a_token
        if rest < 2 * _LEAST_SECONDS:
            continue
        waited = max(0.0, after.first - max(answer.last, after.sent))
        made = min(requests[name].max_tokens - done, round(waited / a_token))
        yield Claim(
            "tokens made for a client that had left",
            str(made),
            "few",
            holds=waited < max(_LEAST_SECONDS, _PART * rest),
        )
