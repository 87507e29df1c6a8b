"""Sends requests to a server with the OpenAI client, on an event loop in its own thread.

Replies are put into one queue in the order in which they arrive.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import queue
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Container, Coroutine
from dataclasses import dataclass
from typing import Any

import httpx2
import openai

from conformance.core.http_clients import async_client
from conformance.core.schedule import Client, Request
from conformance.core.trace import FinishReason
from conformance.plugins.servers import endpoints
from conformance.plugins.servers.answers import CALLED, Answer
from conformance.plugins.servers.other_clients import ClientFailedError, pieces

# The longest time for a single answer, including its wait for other requests.
ANSWER_SECONDS = 300.0
_EVENTS = "text/event-stream"
_SMALL = (socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)  # bytes of the receive buffer
_OK = 200
_LONGEST = 300  # characters of a server's error message
# A busy machine resets connections for which a server's queue has no room, and clients ask again.
# A server that resets more than so many is at fault.
_RESETS = 2


@dataclass
class Resets:
    """How many connections were reset, and made again."""

    count: int = 0


@dataclass(frozen=True)
class Question:
    """A request as it is sent: the fields of the API, and the name that identifies its answer.

    ``unread``: its answer is never read. ``client`` sends it. ``endpoint``: another one than that
    of chats and texts. ``tenant``: for whom it is sent, if anybody.
    """

    name: str
    body: dict[str, Any]
    chat: bool = True
    unread: bool = False
    client: Client = Client.OPENAI
    endpoint: str = ""
    tenant: str = ""

    @property
    def headers(self) -> dict[str, str]:
        """Headers of its own: either name of a tenant's header."""
        name = "X-Tenant-Id" if self.streamed else "X-APC-Tenant"
        return {name: self.tenant} if self.tenant else {}

    @property
    def streamed(self) -> bool:
        """Whether the answer is wanted piece by piece."""
        return bool(self.body.get("stream"))

    @property
    def sent(self) -> dict[str, Any]:
        """The body as a server gets it."""
        if self.endpoint:
            return endpoints.sent(self.endpoint, self.body)
        body = dict(self.body)
        stops, plain = body.get("stop"), self.client is Client.OPENAI and not self.streamed
        if plain and isinstance(stops, list) and len(stops) == 1:
            body["stop"] = stops[0]  # a text by itself is allowed, and no list of letters
        return {"messages" if self.chat else "prompt": body.pop("input"), **body}


class RefusedByServerError(Exception):
    """A server answers a question with an error."""


class BrokenOffError(Exception):
    """A stream stopped without its end marker."""


@dataclass(frozen=True)
class Came:
    """An event of a request: a piece of its answer, the end, or the error that ended it.

    ``on_its_way``: the error is not a reply of the server, but a broken or malformed connection.
    """

    name: str
    answer: Answer
    ended: bool = False
    error: str = ""
    on_its_way: bool = False

    @property
    def refused(self) -> bool:
        """Whether the server refused the request as a client's mistake."""
        return self.error.startswith("HTTP 4")


class Asking:
    """Sends questions and collects their answers; ``close`` ends its thread.

    ``resets``: those of all that ask the same server in a run.
    """

    def __init__(self, url: str, *, key: str = "none", resets: Resets | None = None) -> None:
        self._url, self._key = url, key
        self.came: queue.Queue[Came] = queue.Queue()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="conformance-asking")
        self._thread.start()
        self._tasks: dict[str, asyncio.Task[None]] = {}
        # By request; counted only in the loop's thread, so in order of arrival.
        self._pieces: Counter[str] = Counter()
        self._resets = resets or Resets()
        self._client = self._run(self._make())

    def send(self, question: Question) -> None:
        """Send a question; its answer goes into the queue."""

        def begin() -> None:
            self._tasks[question.name] = self._loop.create_task(self._follow(question))

        self._loop.call_soon_threadsafe(begin)

    def next(self, wanted: Container[str], seconds: float) -> Came | None:
        """The next event of a wanted request; ``None`` if there is none within ``seconds``."""
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            try:
                came = self.came.get(timeout=left)
            except queue.Empty:
                return None
            if came.name in wanted:
                return came
        return None

    def leave(self, name: str) -> dict[str, int]:
        """Close the connection of a question; returns how many pieces each request had then."""
        found: dict[str, int] = self._run(self._cancel(name))
        return found

    def ask(self, question: Question, seconds: float) -> Came:
        """Ask a question outside the queue; returns the whole answer or the error."""
        kept: list[Came] = []
        with contextlib.suppress(TimeoutError):
            self._run(asyncio.wait_for(self._follow(question, kept.append), seconds))
        if kept and kept[-1].ended:
            return kept[-1]
        answer = kept[-1].answer if kept else Answer()
        return Came(question.name, answer, ended=True, error=f"no answer within {seconds:.0f} s")

    def close(self) -> None:
        """Close all open connections and end the thread."""
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
        # Also of what `ask` asked: an interrupted run no longer waits for it.
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        await self._client.close()

    async def _cancel(self, name: str) -> dict[str, int]:
        pieces = dict(self._pieces)
        task = self._tasks.pop(name, None)
        if task is not None:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
        return pieces

    async def _follow(
        self,
        question: Question,
        put: Callable[[Came], Any] | None = None,
        *,
        again: bool = False,
    ) -> None:
        """Send the question and put its events into the queue.

        ``again``: its connection was reset before an answer began.
        """
        put = put or self.came.put
        openai_chat = question.client is Client.OPENAI and not question.endpoint
        answer = Answer(
            bare=question.body.get("logprobs") is False or not openai_chat,
            sent=time.monotonic(),
            at_sending=dict(self._pieces),
        )
        error, on_its_way = "", False
        try:
            if question.unread:
                await self._unread(question)
            elif question.client is not Client.OPENAI:
                await self._by_another(question, answer, put)
            elif question.endpoint:
                await self._other(question, answer, put)
            elif question.streamed:
                await self._streamed(question, answer, put)
            else:
                self._whole(question, answer, await self._sent(question))
        except RefusedByServerError as raised:
            error = str(raised)
        except endpoints.StreamError as raised:
            error, on_its_way = f"an error in the stream: {raised}", True
        except (openai.OpenAIError, httpx2.HTTPError) as raised:
            if not again and self._resets.count < _RESETS and _reset(raised):
                self._resets.count += 1
                await self._follow(question, put, again=True)
                return
            error = described(raised)
            on_its_way = not isinstance(raised, openai.APIStatusError)
        except ClientFailedError as raised:
            error, on_its_way = str(raised), not str(raised).startswith("HTTP")
        except BrokenOffError as raised:
            error, on_its_way = f"the stream broke off: {raised}", True
        except (ValueError, TypeError, AttributeError, KeyError, IndexError) as raised:
            # The client does not validate what a server sends.
            error = f"not an answer of the API: {type(raised).__name__}: {raised}"
            on_its_way = True
        put(Came(question.name, answer, ended=True, error=error, on_its_way=on_its_way))

    async def _unread(self, question: Question) -> None:
        """Keep the answer unread until cancelled; little of it fits into the receive buffer."""
        path = "chat/completions" if question.chat else "completions"
        async with (
            async_client(ANSWER_SECONDS, socket_options=[_SMALL]) as client,
            client.stream("POST", f"{self._url}/v1/{path}", json=question.sent),
        ):
            await asyncio.Event().wait()

    async def _by_another(
        self, question: Question, answer: Answer, put: Callable[[Came], Any]
    ) -> None:
        """Ask with another client than OpenAI's."""
        async for piece in pieces(question.client, self._url, question.sent, key=self._key):
            if answer.first is None:
                answer.at_first = dict(self._pieces)
            self._pieces[question.name] += 1
            answer.ids |= {piece.id} - {""}
            answer.usage = dict(piece.usage) or answer.usage
            answer.add(piece, piece.text)
            put(Came(question.name, answer))
        answer.ids = answer.ids or {question.client}  # not all clients pass on what a server sends

    async def _other(self, question: Question, answer: Answer, put: Callable[[Came], Any]) -> None:
        """Ask an endpoint for which the client is not made."""
        reader = endpoints.READERS[question.endpoint](answer)
        url = f"{self._url}/v1/{question.endpoint}"
        async with (
            async_client(ANSWER_SECONDS) as client,
            client.stream("POST", url, json=question.sent, headers=question.headers) as response,
        ):
            kind = response.headers.get("content-type", "none")
            if response.status_code != _OK or kind.startswith(_EVENTS) is not question.streamed:
                text = (await response.aread()).decode(errors="replace")[:_LONGEST]
                raise RefusedByServerError(f"HTTP {response.status_code}, {kind}: {text}")
            if not question.streamed:
                answer.at_first = dict(self._pieces)
                reader.whole(json.loads(await response.aread()))
                answer.seen()
                return
            async for name, data in endpoints.events(response.aiter_lines()):
                if answer.first is None:
                    answer.at_first = dict(self._pieces)
                self._pieces[question.name] += 1
                reader.named(name, data)
                answer.seen()
                put(Came(question.name, answer))
            if not reader.ended:
                raise BrokenOffError("it ended without its last event")

    async def _sent(self, question: Question) -> Any:
        body = question.sent
        made: Any = self._client.chat.completions if question.chat else self._client.completions
        needed = ("messages" if question.chat else "prompt", "model")
        asked = {name: body.pop(name) for name in needed}
        # Fields that the API does not have are passed on unchanged.
        more = {"extra_body": body, "extra_headers": question.headers}
        return await made.create(stream=body.pop("stream", False), **asked, **more)

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
                answer.made_by(vars(chunk))
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
                # On loaded cores whole answers wait to be read: in turns, as they were made.
                await asyncio.sleep(0)
            if answer.reason is None and not answer.usage:
                raise BrokenOffError("it ended without a finish_reason and without usage")
        finally:
            await stream.close()

    def _whole(self, question: Question, answer: Answer, response: Any) -> None:
        answer.at_first = dict(self._pieces)
        answer.made_by(vars(response))
        answer.ids = answer.ids or {""}
        if response.usage:
            answer.usage = response.usage.model_dump()
        (choice,) = response.choices
        if question.chat:
            answer.add_parts(choice.message)
        answer.add(choice, choice.message.content if question.chat else choice.text)


def _reset(error: Exception) -> bool:
    """Whether the connection was reset before an answer began, which is what the client wraps."""
    begins = isinstance(error, openai.APIConnectionError)
    return begins and isinstance(error.__cause__, httpx2.ReadError)


def described(error: Exception) -> str:
    """An error of the client in one line, with the status and the server's message."""
    if isinstance(error, openai.APIStatusError):
        if place := error.response.headers.get("location"):
            return f"HTTP {error.status_code} to {place[:_LONGEST]}: redirects are not followed"
        return f"HTTP {error.status_code}: {error.response.text[:_LONGEST] or 'no message'}"
    cause = error.__cause__ or error
    return f"{type(cause).__name__}: {cause}".rstrip(": ")


Tokens = list[tuple[int, float | None]]
"""The tokens of an answer, with the logprob that the server reports for each."""


class ServerFailedError(RuntimeError):
    """A server refused a valid request, or broke off its answer."""


def reason_of(answer: Answer) -> FinishReason | None:
    """The finish reason of the answer; ``None`` if it is none that is known."""
    if answer.reason == CALLED:  # it ended as it would have without the call
        return FinishReason.LENGTH
    return next((reason for reason in FinishReason if reason == answer.reason), None)


def stopped_at(request: Request, left_out: int) -> tuple[int, ...]:
    """The stop sequence, which the answer leaves out.

    Of several, the first with as many tokens as the answer ``left_out`` by the server's count;
    empty if none has.
    """
    if len(request.stop) == 1:
        return request.stop[0]
    return next((sequence for sequence in request.stop if len(sequence) == left_out), ())
