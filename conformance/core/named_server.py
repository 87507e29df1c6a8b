"""The server that the user names, passed to all processes of a run in the environment."""

from __future__ import annotations

import ipaddress
import os
from dataclasses import dataclass
from urllib.parse import urlsplit

from conformance.core.errors import ConformanceError

MOST_REQUESTS = 1000
"""The most requests to a server elsewhere, unless the user allows more."""

_URL, _MODEL, _MOST = "CONFORMANCE_URL", "CONFORMANCE_SERVED_MODEL", "CONFORMANCE_REQUESTS"


@dataclass(frozen=True)
class NamedServer:
    """A server and its limits.

    Attributes:
        url: with scheme, host and port, without the API's path.
        model: the server's name of its model; empty: the first model that it lists.
        most: the limit on requests; ``None`` for a server on this machine.
    """

    url: str
    model: str = ""
    most: int | None = None


def use(url: str, *, model: str = "", remote: bool = False, most: int | None = None) -> NamedServer:
    """Let this process and its child processes send requests to the server at ``url``.

    Args:
        remote: the server may be on another machine; then at most ``most`` requests are sent.

    Raises:
        ConformanceError: it is not a server's URL, or is on another machine without ``remote``.
    """
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError as error:
        raise ConformanceError(f"--url: {url!r} is no URL: {error}") from error
    if parts.scheme not in ("http", "https") or not host:
        raise ConformanceError(
            f"--url: {url!r} is no URL of a server, such as http://127.0.0.1:8080"
        )
    local = _is_local(host)
    if not local and not remote:
        raise ConformanceError(
            f"--url: {host} is another machine; --remote allows it, for at most "
            f"{MOST_REQUESTS:,} requests, or as many as --requests says"
        )
    base = url.rstrip("/").removesuffix("/v1")
    bound = most if local else most or MOST_REQUESTS
    os.environ |= {_URL: base, _MODEL: model, _MOST: str(bound or "")}
    return NamedServer(base, model, bound)


def options() -> tuple[str, ...]:
    """The options that name the server, for commands that ask it again; empty if there is none."""
    if not os.environ.get(_URL):
        return ()
    server = named()
    found = ["--url", server.url, *(["--model", server.model] if server.model else [])]
    local = _is_local(urlsplit(server.url).hostname or "")
    found += [] if local else ["--remote"]
    if server.most != (None if local else MOST_REQUESTS):
        found += ["--requests", str(server.most)]
    return tuple(found)


def named() -> NamedServer:
    """The server that the user named.

    Raises:
        ConformanceError: there is none.
    """
    if not os.environ.get(_URL):
        raise ConformanceError("the engine http asks the server that --url names; add --url")
    most = os.environ.get(_MOST, "")
    return NamedServer(os.environ[_URL], os.environ.get(_MODEL, ""), int(most) if most else None)


def _is_local(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
