"""The only maker of HTTP clients: it bounds what an answer may do to this machine.

Prompts go only to the named server: redirects are not followed, and the environment is ignored: no
proxy, no certificates, no ``.netrc``. Answers are bounded in size and not compressed, as a small
compressed one can fill the memory.
"""

from __future__ import annotations

import functools
import ssl
from collections.abc import AsyncIterator, Iterable, Iterator
from typing import Any

import httpx2

from conformance.core.errors import ModelError

MOST_BYTES = 64 * 2**20
"""Size limit of one answer, streamed or not: many times that of a thousand tokens with logprobs."""

_ENCODING = "identity"
_MODELS_SECONDS = 120.0
# Further requests wait here: a server that accepts one connection at a time drops many more, and a
# dropped one is tried again after seconds.
_LIMITS = httpx2.Limits(max_connections=100, max_keepalive_connections=20)
_LONGEST = 300  # characters of a server's names


class RefusedAnswerError(httpx2.TransportError):
    """A server answers, but in a form that is not supported."""


def client(seconds: float, *, as_pip: bool = False) -> httpx2.Client:
    """A client with this timeout for each piece of an answer.

    Args:
        as_pip: it asks the package index that pip uses here, with the same proxy and certificates,
            and follows its redirects. No prompts go there.
    """
    return httpx2.Client(
        verify=True if as_pip else certificates(),
        timeout=seconds,
        trust_env=as_pip,
        follow_redirects=as_pip,
        headers={"Accept-Encoding": _ENCODING},
        event_hooks={"response": [_bound]},
    )


def async_client(
    timeout: httpx2.Timeout | float, *, socket_options: Iterable[Any] = ()
) -> httpx2.AsyncClient:
    """The same for an event loop."""
    transport = httpx2.AsyncHTTPTransport(
        verify=certificates(),
        trust_env=False,
        limits=_LIMITS,
        socket_options=[*socket_options],
    )
    return httpx2.AsyncClient(
        transport=transport,
        timeout=timeout,
        trust_env=False,
        follow_redirects=False,
        headers={"Accept-Encoding": _ENCODING},
        event_hooks={"response": [_bound_async]},
    )


def get(url: str, seconds: float) -> httpx2.Response:
    """The answer to a GET."""
    with client(seconds) as asking:
        return asking.get(url)


def models(url: str) -> list[str]:
    """The names of all models that the server has; at least one.

    Raises:
        ModelError: no server answers, or it names none.
    """
    try:
        found = get(f"{url}/v1/models", _MODELS_SECONDS)
        if found.is_redirect:
            place = found.headers.get("location", "")[:_LONGEST]
            raise ModelError(f"{url}/v1/models leads to {place}, and redirects are not followed")
        found.raise_for_status()
        names = [str(model["id"]) for model in found.json()["data"]]
        return [names[0], *names[1:]]
    except (RefusedAnswerError, httpx2.HTTPStatusError) as error:
        raise ModelError(f"{url}/v1/models: {error}") from error
    except httpx2.HTTPError as error:
        raise ModelError(f"{url}/v1/models: no server answers there: {error}") from error
    except (ValueError, TypeError, KeyError, IndexError) as error:
        raise ModelError(
            f"{url}/v1/models names no model ({type(error).__name__}); --model does"
        ) from error


@functools.cache
def certificates() -> ssl.SSLContext:
    """The certificates of the client's own package; reading them takes a moment."""
    return httpx2.create_ssl_context(trust_env=False)


def _bound(response: httpx2.Response) -> None:
    """Refuse an answer by its headers, and count its pieces as they are read."""
    _check_head(response)
    assert isinstance(response.stream, httpx2.SyncByteStream)
    response.stream = _Counted(response.stream)


async def _bound_async(response: httpx2.Response) -> None:
    """The same for an event loop."""
    _check_head(response)
    assert isinstance(response.stream, httpx2.AsyncByteStream)
    response.stream = _AsyncCounted(response.stream)


class _Counted(httpx2.SyncByteStream):
    """The pieces of an answer, until they exceed the size limit."""

    def __init__(self, inner: httpx2.SyncByteStream) -> None:
        self._inner = inner

    def __iter__(self) -> Iterator[bytes]:
        size = 0
        for piece in self._inner:
            size += len(piece)
            _check_size(size)
            yield piece

    def close(self) -> None:
        self._inner.close()


class _AsyncCounted(httpx2.AsyncByteStream):
    """The same for an event loop."""

    def __init__(self, inner: httpx2.AsyncByteStream) -> None:
        self._inner = inner

    async def __aiter__(self) -> AsyncIterator[bytes]:
        size = 0
        async for piece in self._inner:
            size += len(piece)
            _check_size(size)
            yield piece

    async def aclose(self) -> None:
        await self._inner.aclose()


def _check_head(response: httpx2.Response) -> None:
    """Check the headers before the body is read."""
    encoding = response.headers.get("content-encoding", _ENCODING).strip().lower()
    if encoding not in ("", _ENCODING):
        raise RefusedAnswerError(
            f"it answers, but the answer is compressed ({encoding[:20]}), which was not asked for: "
            "let it answer without compression"
        )


def _check_size(size: int) -> None:
    if size > MOST_BYTES:
        most = f"{MOST_BYTES // 2**20} MiB"
        raise RefusedAnswerError(f"it answers, but the answer has more than {most}")
