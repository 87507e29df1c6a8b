"""Requests to a server by the OpenAI client, on an event loop in a thread of its own.

What comes back is put into one queue in the order in which it came.
"""

from __future__ import annotations

import asyncio
import contextlib
import queue
import threading
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any

import httpx2
import openai

# The longest that a single answer may take, with all that waits before it.
ANSWER_SECONDS = 300.0
_LONGEST = 300  # characters of what a server says of an error


@dataclass(frozen=True)
class Question:
    """A request as it is sent: the fields of the API, and the name that its answer is known by."""

    name: str
    body: dict[str, Any]
    chat: bool = True

    @property
    def streamed(self) -> bool:
        """Whether the answer is wanted piece by piece."""
        return bool(self.body.get("stream"))


@dataclass
class Answer:
    """All that came back for a request.

    Attributes:
        text: of all pieces, joined.
        entries: those of the logprobs, in order: dicts with ``token``, ``logprob``, ``id``.
        reason: why it ended, as the server says.
        usage: the server's counts of tokens.
        ids: the ids that its pieces had.
        sent, first, last: when it was sent, and when its first and last piece came, in seconds.
    """

    text: str = ""
    entries: list[dict[str, Any]] = field(default_factory=list)
    reason: str | None = None
    usage: dict[str, Any] = field(default_factory=dict)
    ids: set[str] = field(default_factory=set)
    sent: float = 0.0
    first: float | None = None
    last: float = 0.0

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


@dataclass(frozen=True)
class Came:
    """Something that came for a request: a piece, its end, or the error that ended it."""

    name: str
    answer: Answer
    ended: bool = False
    error: str = ""


class Asking:
    """Sends questions and collects what comes back; ``close`` ends its thread."""

    def __init__(self, url: str, *, key: str = "none") -> None:
        self._url, self._key = url, key
        self.came: queue.Queue[Came] = queue.Queue()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="conformance-asking")
        self._thread.start()
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._client = self._run(self._make())

    def send(self, question: Question) -> None:
        """Send a question; its answer comes into the queue."""

        def begin() -> None:
            self._tasks[question.name] = self._loop.create_task(self._follow(question))

        self._loop.call_soon_threadsafe(begin)

    def leave(self, name: str) -> None:
        """Close the connection of a question, whatever has come of its answer."""
        self._run(self._cancel(name))

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
            timeout=openai.Timeout(ANSWER_SECONDS, connect=60.0),
        )

    async def _finish(self) -> None:
        for name in list(self._tasks):
            await self._cancel(name)
        await self._client.close()

    async def _cancel(self, name: str) -> None:
        task = self._tasks.pop(name, None)
        if task is not None:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

    async def _follow(self, question: Question, put: Callable[[Came], Any] | None = None) -> None:
        """Send the question, and put what comes of it."""
        put = put or self.came.put
        answer = Answer(sent=time.monotonic())
        error = ""
        try:
            if question.streamed:
                await self._streamed(question, answer, put)
            else:
                self._whole(question, answer, await self._sent(question))
        except (openai.OpenAIError, httpx2.HTTPError) as raised:
            error = described(raised)
        except (ValueError, TypeError, AttributeError, KeyError, IndexError) as raised:
            # The client reads what a server sends without checking it first.
            error = f"not an answer of the API: {type(raised).__name__}: {raised}"
        put(Came(question.name, answer, ended=True, error=error))

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
        try:
            async for chunk in stream:
                if chunk.id:
                    answer.ids.add(chunk.id)
                if getattr(chunk, "usage", None):
                    answer.usage = chunk.usage.model_dump()
                for choice in chunk.choices or ():
                    piece = choice.delta.content if question.chat else choice.text
                    answer.add(choice, piece)
                    put(Came(question.name, answer))
        finally:
            await stream.close()

    @staticmethod
    def _whole(question: Question, answer: Answer, response: Any) -> None:
        answer.ids.add(response.id)
        if response.usage:
            answer.usage = response.usage.model_dump()
        (choice,) = response.choices
        answer.add(choice, choice.message.content if question.chat else choice.text)


def described(error: Exception) -> str:
    """An error of the client in one line, with the status and what the server said."""
    if isinstance(error, openai.APIStatusError):
        return f"HTTP {error.status_code}: {error.response.text[:_LONGEST] or 'no message'}"
    cause = error.__cause__ or error
    return f"{type(cause).__name__}: {cause}".rstrip(": ")
