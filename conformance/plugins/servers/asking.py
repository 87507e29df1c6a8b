"""Requests to a server by the OpenAI client, on an event loop in a thread of its own.

What comes back is put into one queue in the order in which it came.
"""

from __future__ import annotations

import asyncio
import contextlib
import enum
import json
import queue
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any

import httpx2
import openai

from conformance.core.http_clients import async_client

# The longest that a single answer may take, with all that waits before it.
ANSWER_SECONDS = 300.0
_EVENTS = "text/event-stream"
_SMALL = (socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)  # bytes that wait to be read
_LONGEST = 300  # characters of what a server says of an error


@dataclass(frozen=True)
class Question:
    """A request as it is sent: the fields of the API, and the name that its answer is known by.

    ``unread``: nothing of its answer is read.
    """

    name: str
    body: dict[str, Any]
    chat: bool = True
    unread: bool = False

    @property
    def streamed(self) -> bool:
        """Whether the answer is wanted piece by piece."""
        return bool(self.body.get("stream"))


class PartKind(enum.StrEnum):
    """What a piece of an answer is."""

    TEXT = "text"
    REASONING = "reasoning"
    TOOL = "tool"


@dataclass(frozen=True)
class Part:
    """A piece of an answer; of a call of a tool, its name and arguments as JSON."""

    kind: PartKind
    text: str


@dataclass
class Answer:
    """All that came back for a request.

    Attributes:
        text: of all pieces, joined.
        parts: of a chat in which a message has more than text, in order.
        entries: those of the logprobs, in order: dicts with ``token``, ``logprob``, ``id``.
        reason: why it ended, as the server says.
        usage: the server's counts of tokens.
        ids: the ids that its pieces had.
        sent, first, last: when it was sent, and when its first and last piece came, in seconds.
        at_sending, at_first: how many pieces each request had by then.
    """

    text: str = ""
    parts: list[Part] = field(default_factory=list)
    entries: list[dict[str, Any]] = field(default_factory=list)
    reason: str | None = None
    usage: dict[str, Any] = field(default_factory=dict)
    ids: set[str] = field(default_factory=set)
    sent: float = 0.0
    first: float | None = None
    last: float = 0.0
    at_sending: dict[str, int] = field(default_factory=dict)
    at_first: dict[str, int] = field(default_factory=dict)

    def add(self, choice: Any, piece: str | None) -> None:
        """Take in a piece of text and what came with it."""
        now = time.monotonic()
        self.first = now if self.first is None else self.first
        self.last = now
        self.text += piece or ""
        logprobs = getattr(choice, "logprobs", None)
        for entry in getattr(logprobs, "content", None) or ():
            self.entries.append(entry if isinstance(entry, dict) else entry.model_dump())
        if choice.finish_reason is not None:
            self.reason = str(choice.finish_reason)

    def add_parts(self, message: Any) -> None:
        """Take in what a message, or a piece of one, has: reasoning, text, calls of tools."""
        reasoning = getattr(message, "reasoning", None)
        reasoning = reasoning or getattr(message, "reasoning_content", None)
        if reasoning:
            self.parts.append(Part(PartKind.REASONING, str(reasoning)))
        if message.content:
            self.parts.append(Part(PartKind.TEXT, str(message.content)))
        for call in getattr(message, "tool_calls", None) or ():
            self._add_call(call.function)

    def _add_call(self, function: Any) -> None:
        """A call may come in pieces: its name first, then its arguments."""
        text = f'{{"name":{json.dumps(function.name)},' if function.name else ""
        if function.arguments:
            text += f'"arguments":{function.arguments}}}'
        self.parts.append(Part(PartKind.TOOL, text.replace(" ", "")))


class BrokenOffError(Exception):
    """A stream has no end."""


@dataclass(frozen=True)
class Came:
    """Something that came for a request: a piece, its end, or the error that ended it.

    ``on_its_way``: the error is not what the server says, but that nothing came of the API's form.
    """

    name: str
    answer: Answer
    ended: bool = False
    error: str = ""
    on_its_way: bool = False


class Asking:
    """Sends questions and collects what comes back; ``close`` ends its thread."""

    def __init__(self, url: str, *, key: str = "none") -> None:
        self._url, self._key = url, key
        self.came: queue.Queue[Came] = queue.Queue()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="conformance-asking")
        self._thread.start()
        self._tasks: dict[str, asyncio.Task[None]] = {}
        # Of each request; counted in the loop's thread alone, so in the order in which they came.
        self._pieces: Counter[str] = Counter()
        self._client = self._run(self._make())

    def send(self, question: Question) -> None:
        """Send a question; its answer comes into the queue."""

        def begin() -> None:
            self._tasks[question.name] = self._loop.create_task(self._follow(question))

        self._loop.call_soon_threadsafe(begin)

    def leave(self, name: str) -> dict[str, int]:
        """Close the connection of a question; gives the pieces that each request had by then."""
        found: dict[str, int] = self._run(self._cancel(name))
        return found

    def ask(self, question: Question, seconds: float) -> Came:
        """The whole answer to a question, by itself; its end, or the error."""
        kept: list[Came] = []
        with contextlib.suppress(TimeoutError):
            self._run(asyncio.wait_for(self._follow(question, kept.append), seconds))
        if kept and kept[-1].ended:
            return kept[-1]
        answer = kept[-1].answer if kept else Answer()
        return Came(question.name, answer, ended=True, error=f"no answer within {seconds:.0f} s")

    def close(self) -> None:
        """Leave all that is still open, and end the thread."""
        self._run(self._finish())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _run(self, work: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    async def _make(self) -> openai.AsyncOpenAI:
        return openai.AsyncOpenAI(
            base_url=f"{self._url}/v1",
            api_key=self._key,
            max_retries=0,
            http_client=async_client(openai.Timeout(ANSWER_SECONDS, connect=60.0)),
        )

    async def _finish(self) -> None:
        for name in list(self._tasks):
            await self._cancel(name)
        await self._client.close()

    async def _cancel(self, name: str) -> dict[str, int]:
        pieces = dict(self._pieces)
        task = self._tasks.pop(name, None)
        if task is not None:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
        return pieces

    async def _follow(self, question: Question, put: Callable[[Came], Any] | None = None) -> None:
        """Send the question, and put what comes of it."""
        put = put or self.came.put
        answer = Answer(sent=time.monotonic(), at_sending=dict(self._pieces))
        error, on_its_way = "", False
        try:
            if question.unread:
                await self._unread(question)
            elif question.streamed:
                await self._streamed(question, answer, put)
            else:
                self._whole(question, answer, await self._sent(question))
        except (openai.OpenAIError, httpx2.HTTPError) as raised:
            error = described(raised)
            on_its_way = not isinstance(raised, openai.APIStatusError)
        except BrokenOffError as raised:
            error, on_its_way = f"the stream broke off: {raised}", True
        except (ValueError, TypeError, AttributeError, KeyError, IndexError) as raised:
            # The client reads what a server sends without checking it first.
            error = f"not an answer of the API: {type(raised).__name__}: {raised}"
            on_its_way = True
        put(Came(question.name, answer, ended=True, error=error, on_its_way=on_its_way))

    async def _unread(self, question: Question) -> None:
        """Until this is cancelled; little of the answer fits into what waits to be read."""
        path = "chat/completions" if question.chat else "completions"
        body = dict(question.body)
        body["messages" if question.chat else "prompt"] = body.pop("input")
        async with (
            async_client(ANSWER_SECONDS, socket_options=[_SMALL]) as client,
            client.stream("POST", f"{self._url}/v1/{path}", json=body),
        ):
            await asyncio.Event().wait()

    async def _sent(self, question: Question) -> Any:
        body = dict(question.body)
        # Fields beside those of the API go through as they are.
        made: Any = self._client.chat.completions if question.chat else self._client.completions
        asked = {"messages" if question.chat else "prompt": body.pop("input"), "extra_body": body}
        model, stream = body.pop("model"), body.pop("stream", False)
        return await made.create(model=model, stream=stream, **asked)

    async def _streamed(
        self, question: Question, answer: Answer, put: Callable[[Came], Any]
    ) -> None:
        stream = await self._sent(question)
        kind = stream.response.headers.get("content-type", "none")
        try:
            if not kind.startswith(_EVENTS):
                text = (await stream.response.aread()).decode(errors="replace")[:_LONGEST]
                raise TypeError(f"content type {kind} in place of {_EVENTS}: {text!r}")
            async for chunk in stream:
                if chunk.id:
                    answer.ids.add(chunk.id)
                if getattr(chunk, "usage", None):
                    answer.usage = chunk.usage.model_dump()
                for choice in chunk.choices or ():
                    piece = choice.delta.content if question.chat else choice.text
                    if answer.first is None:
                        answer.at_first = dict(self._pieces)
                    self._pieces[question.name] += 1
                    if question.chat:
                        answer.add_parts(choice.delta)
                    answer.add(choice, piece)
                    put(Came(question.name, answer))
            if answer.reason is None and not answer.usage:
                raise BrokenOffError("it ended without a finish_reason and without usage")
        finally:
            await stream.close()

    def _whole(self, question: Question, answer: Answer, response: Any) -> None:
        answer.at_first = dict(self._pieces)
        answer.ids.add(response.id)
        if response.usage:
            answer.usage = response.usage.model_dump()
        (choice,) = response.choices
        if question.chat:
            answer.add_parts(choice.message)
        answer.add(choice, choice.message.content if question.chat else choice.text)


def described(error: Exception) -> str:
    """An error of the client in one line, with the status and what the server said."""
    if isinstance(error, openai.APIStatusError):
        if place := error.response.headers.get("location"):
            return f"HTTP {error.status_code} to {place[:_LONGEST]}: redirects are not followed"
        return f"HTTP {error.status_code}: {error.response.text[:_LONGEST] or 'no message'}"
    cause = error.__cause__ or error
    return f"{type(cause).__name__}: {cause}".rstrip(": ")
