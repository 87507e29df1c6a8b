"""Requests sent with other clients than OpenAI's: on a plain socket, Anthropic's, LangChain's.

Each gives the pieces of an answer as one stream, whatever the form in which they came.
"""

from __future__ import annotations

import asyncio
import json
import socket
import ssl
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from conformance.core.http_clients import MOST_BYTES, async_client, certificates
from conformance.core.schedule import Client

# ruff: noqa: PLC0415 - two of the packages are in an extra

_SECONDS = 300.0  # of an answer
_LONGEST = 300  # characters of a server's message
# A slow reader: the server's own buffers fill while its client takes a little at a time.
_READ, _PAUSE = 64, 0.001  # bytes, seconds
_BUFFER = 4096  # bytes
_OK = 200
_HEX = 16
# Anthropic's stop reasons, as OpenAI's API has them; any other stays as it is.
_REASONS = {"max_tokens": "length", "end_turn": "stop", "stop_sequence": "stop"}


@dataclass(frozen=True)
class Piece:
    """A piece of an answer: what a choice of OpenAI's API has, and the counts of tokens."""

    text: str = ""
    finish_reason: str | None = None
    id: str = ""
    usage: Mapping[str, int | None] = field(default_factory=dict)
    logprobs: Any = None


class ClientFailedError(Exception):
    """A server refuses a request, or its answer is none; a refusal begins with ``HTTP``."""


async def pieces(
    client: Client, url: str, body: Mapping[str, Any], *, key: str
) -> AsyncIterator[Piece]:
    """The pieces of the answer to a chat, sent with this client.

    Args:
        body: the fields of OpenAI's API.

    Raises:
        ClientFailedError: there is no answer, or it is broken.
    """
    kinds = {Client.RAW: _raw, Client.ANTHROPIC: _anthropic, Client.LANGCHAIN: _langchain}
    async for piece in kinds[client](url, body, key):
        yield piece


# HTTP/1.1 on a socket -----------------------------------------------------------------------------


async def _raw(url: str, body: Mapping[str, Any], key: str) -> AsyncIterator[Piece]:  # noqa: ARG001
    """As a small program would ask: it reads slowly, and checks how the answer is framed."""
    place = urlsplit(url)
    content = json.dumps(body).encode()
    head = (
        f"POST {place.path}/v1/chat/completions HTTP/1.1\r\nHost: {place.netloc}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(content)}\r\n"
        "Accept: */*\r\nConnection: close\r\n\r\n"
    )
    reader, writer = await _connected(place.hostname or "", place.port, place.scheme)
    try:
        writer.write(head.encode() + content)
        await writer.drain()
        slow = _Slow(reader)
        status, headers = await slow.head()
        if status != _OK:
            text = (await slow.rest(headers)).decode(errors="replace")
            raise ClientFailedError(f"HTTP {status}: {text[:_LONGEST] or 'no message'}")
        if not body.get("stream"):
            yield _of_choice(json.loads(await slow.rest(headers)))
            return
        ended = False
        async for event in slow.events(headers):
            if ended:
                raise ClientFailedError(f"an event comes after [DONE]: {event[:_LONGEST]!r}")
            ended = event == b"[DONE]"
            if not ended:
                yield _of_choice(json.loads(event))
        if not ended:
            raise ClientFailedError("the stream broke off: it has no [DONE]")
    except (OSError, ValueError, KeyError, TypeError, asyncio.IncompleteReadError) as error:
        raise ClientFailedError(f"{type(error).__name__}: {error}") from error
    finally:
        writer.close()


async def _connected(
    host: str, port: int | None, scheme: str
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A connection with a small receive buffer."""
    tls: ssl.SSLContext | None = certificates() if scheme == "https" else None
    number = port or (443 if tls else 80)
    found = await asyncio.get_running_loop().getaddrinfo(host, number, type=socket.SOCK_STREAM)
    family, kind, protocol, _, address = found[0]
    made = socket.socket(family, kind, protocol)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _BUFFER)
        made.setblocking(False)
        await asyncio.get_running_loop().sock_connect(made, address)
        name = host if tls else None
        return await asyncio.open_connection(
            sock=made, ssl=tls, server_hostname=name, limit=_BUFFER
        )
    except BaseException:
        made.close()
        raise


class _Slow:
    """Reads an answer a few bytes at a time, exactly as its headers frame it."""

    def __init__(self, reader: asyncio.StreamReader) -> None:
        self._reader = reader
        self._kept = b""
        self._size = 0

    async def head(self) -> tuple[int, dict[str, str]]:
        """The status and the headers."""
        first, *lines = (await self._until(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        version, status = first.split(maxsplit=2)[:2]
        if not version.startswith("HTTP/1."):
            raise ValueError(f"not HTTP/1.1: {first[:40]!r}")
        pairs = (line.split(":", 1) for line in lines if line)
        return int(status), {name.strip().lower(): value.strip() for name, value in pairs}

    async def rest(self, headers: Mapping[str, str]) -> bytes:
        """The whole body."""
        return b"".join([piece async for piece in self._body(headers)])

    async def events(self, headers: Mapping[str, str]) -> AsyncIterator[bytes]:
        """The data of the events of a stream."""
        kept = b""
        async for piece in self._body(headers):
            *lines, kept = (kept + piece).split(b"\n")
            for line in lines:
                if line.startswith(b"data:"):
                    yield line.removeprefix(b"data:").strip()
        if kept.strip():
            raise ValueError(f"the stream ends in the middle of a line: {kept[:40]!r}")

    async def _body(self, headers: Mapping[str, str]) -> AsyncIterator[bytes]:
        if headers.get("transfer-encoding", "").lower() == "chunked":
            while size := int((await self._until(b"\r\n")).split(b";")[0], _HEX):
                yield await self._exactly(size)
                if await self._exactly(2) != b"\r\n":
                    raise ValueError("a chunk is longer than it says")
            await self._until(b"\r\n")
        elif "content-length" in headers:
            yield await self._exactly(int(headers["content-length"]))
            if self._kept or await self._more():
                raise ValueError("the answer is longer than its Content-Length")
        else:
            while piece := self._kept or await self._more():
                self._kept = b""
                yield piece

    async def _until(self, end: bytes) -> bytes:
        while end not in self._kept:
            piece = await self._more()
            if not piece:
                raise ValueError(f"the connection was closed within {self._kept[:40]!r}")
            self._kept += piece
        found, _, self._kept = self._kept.partition(end)
        return found

    async def _exactly(self, size: int) -> bytes:
        while len(self._kept) < size:
            piece = await self._more()
            if not piece:
                raise ValueError(f"the connection was closed {size - len(self._kept)} bytes early")
            self._kept += piece
        found, self._kept = self._kept[:size], self._kept[size:]
        return found

    async def _more(self) -> bytes:
        await asyncio.sleep(_PAUSE)
        piece = await asyncio.wait_for(self._reader.read(_READ), _SECONDS)
        self._size += len(piece)
        if self._size > MOST_BYTES:
            raise ValueError(f"the answer has more than {MOST_BYTES // 2**20} MiB")
        return piece


def _of_choice(made: Mapping[str, Any]) -> Piece:
    """The piece in a JSON object of OpenAI's API."""
    choices = made.get("choices") or [{}]
    (choice,) = choices
    content = (choice.get("delta") or choice.get("message") or {}).get("content")
    reason, usage = choice.get("finish_reason"), made.get("usage")
    return Piece(content or "", reason, str(made["id"]), usage or {})


# Anthropic's --------------------------------------------------------------------------------------


async def _anthropic(url: str, body: Mapping[str, Any], key: str) -> AsyncIterator[Piece]:
    import anthropic

    given = _of_anthropic(body)
    async with anthropic.AsyncAnthropic(
        base_url=url, api_key=key, max_retries=0, http_client=async_client(_SECONDS)
    ) as client:
        try:
            if not body.get("stream"):
                message = await client.messages.create(**given)
                text = "".join(part.text for part in message.content if part.type == "text")
                counts = message.usage.input_tokens, message.usage.output_tokens
                yield Piece(text, _reason(message.stop_reason), message.id, _usage(*counts))
                return
            async with client.messages.stream(**given) as stream:
                async for text in stream.text_stream:
                    yield Piece(text)
                message = await stream.get_final_message()
            counts = message.usage.input_tokens, message.usage.output_tokens
            yield Piece("", _reason(message.stop_reason), message.id, _usage(*counts))
        except anthropic.APIStatusError as error:
            text = error.response.text[:_LONGEST]
            raise ClientFailedError(f"HTTP {error.status_code}: {text or 'no message'}") from error
        except (anthropic.AnthropicError, ValueError, TypeError, AttributeError) as error:
            raise ClientFailedError(f"{type(error).__name__}: {error}") from error


def _of_anthropic(body: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of Anthropic's API for those of OpenAI's."""
    said: Sequence[Mapping[str, Any]] = body["messages"]
    system = "".join(one["content"] for one in said if one["role"] == "system")
    found: dict[str, Any] = {name: body[name] for name in ("model", "max_tokens")}
    found["messages"] = [one for one in said if one["role"] != "system"]
    # The present client has no such argument, but its API does.
    found["extra_body"] = {"temperature": body["temperature"]}
    if system:
        found["system"] = system
    if "stop" in body:
        found["stop_sequences"] = body["stop"]
    return found


def _reason(said: str | None) -> str | None:
    return _REASONS.get(said or "", said)


def _usage(prompt: int | None, completion: int | None) -> dict[str, int | None]:
    total = (prompt or 0) + (completion or 0)
    return {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": total}


# LangChain's --------------------------------------------------------------------------------------


async def _langchain(url: str, body: Mapping[str, Any], key: str) -> AsyncIterator[Piece]:
    import openai
    from langchain_openai import ChatOpenAI
    from langsmith import tracing_context

    http = async_client(_SECONDS)
    model = ChatOpenAI(
        model=body["model"],
        base_url=f"{url}/v1",
        api_key=key,
        temperature=body["temperature"],
        max_tokens=body["max_tokens"],
        stop=body.get("stop"),
        stream_usage=True,
        max_retries=0,
        http_async_client=http,
    )
    said = [(one["role"], one["content"]) for one in body["messages"]]
    try:
        with tracing_context(enabled=False):  # prompts go to the named server only
            if not body.get("stream"):
                yield _of_message(await model.ainvoke(said))
                return
            async for chunk in model.astream(said):
                yield _of_message(chunk)
    except openai.APIStatusError as error:
        text = error.response.text[:_LONGEST]
        raise ClientFailedError(f"HTTP {error.status_code}: {text or 'no message'}") from error
    except (openai.OpenAIError, ValueError, TypeError, KeyError) as error:
        raise ClientFailedError(f"{type(error).__name__}: {error}") from error
    finally:
        await http.aclose()


def _of_message(message: Any) -> Piece:
    """The piece in a message of LangChain, or in a part of one."""
    counts = message.usage_metadata or {}
    usage = _usage(counts["input_tokens"], counts["output_tokens"]) if counts else {}
    reason = message.response_metadata.get("finish_reason")
    return Piece(str(message.text), reason, usage=usage)
