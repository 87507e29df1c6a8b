"""Checks an idle server: whether it answers, and what it still holds."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

import httpx2

from conformance.core.http_clients import RefusedAnswerError, get
from conformance.core.schedule import Request
from conformance.core.trace import Claim
from conformance.plugins.servers.asked_server import AskedServer
from conformance.plugins.servers.asking import Came, Question
from conformance.plugins.servers.claims import asked_again, memory_kept, same_text, still_open

_AGAIN, _LONG = 3, 64  # answers asked for again in one piece, and their most tokens
_MANY = 100  # requests after which memory is checked
_SETTLE_SECONDS, _LOOK_SECONDS, _ASK_SECONDS = 5.0, 0.1, 5.0


class Look:
    """A check of an idle server, with the earlier state that it is compared with.

    Attributes:
        broken: answers whose connection broke off.
        memory: the server's bytes when the first request was sent; ``None`` if unknown.
    """

    def __init__(self) -> None:
        self.broken: list[Came] = []
        self.memory: int | None = None

    def after(self, engine: AskedServer, ended: Sequence[tuple[Request, Came]]) -> Iterator[Claim]:
        """Claims about the server after these answers, while no other request is open."""
        short = [pair for pair in ended if pair[0].max_tokens <= _LONG]
        for request, came in short[:_AGAIN]:
            yield from _whole_again(engine, request, came)
        requests = {request.request_id: request for request, _ in ended}
        for came in self.broken[:_AGAIN]:
            request = requests[came.name]
            again = engine.asking.ask(engine.question(request, streamed=False), engine.patience)
            yield asked_again(came, again)
        self.broken = []
        yield still_open(_settled(engine))
        if len(ended) >= _MANY and self.memory is not None:
            yield from memory_kept(self.memory, engine.memory())


def _whole_again(engine: AskedServer, request: Request, came: Came) -> Iterator[Claim]:
    """Ask the request again, alone and unstreamed: the text must equal the streamed one."""
    asked = request.asked
    streamed = asked is None or asked.streamed
    if came.answer.reason is None or request.sampler or not streamed:
        return
    question = engine.question(request, streamed=False)
    yield from same_text(came.answer, engine.asking.ask(question, engine.patience))


def _settled(engine: AskedServer) -> int:
    """The requests that the server reports open, once it has had time to notice their end."""
    end = time.monotonic() + _SETTLE_SECONDS
    while (count := _reported(engine.url)) and time.monotonic() < end:
        time.sleep(_LOOK_SECONDS)
    return count


def _reported(url: str) -> int:
    """Requests in flight by the server's own metrics; 0 if it has no known metrics."""
    try:
        summary = get(f"{url}/metrics", _ASK_SECONDS).json()["summary"]
        return int(summary["in_flight"])
    except (httpx2.HTTPError, ValueError, TypeError, KeyError, IndexError):
        return 0


def port_answers(url: str) -> bool:
    """Whether anything answers at the URL's port."""
    try:
        get(f"{url}/v1/models", _ASK_SECONDS)
    except RefusedAnswerError:
        return True
    except httpx2.HTTPError:
        return False
    return True


def plain(name: str, engine: AskedServer) -> Question:
    """A short plain request."""
    low, high = engine.vocabulary()
    return engine.question(Request(name, (low, (low + high) // 2), 2), streamed=False)
