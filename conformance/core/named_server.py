"""The server that the user names: known to all processes of a run by their environment."""

from __future__ import annotations

import ipaddress
import os
from dataclasses import dataclass
from urllib.parse import urlsplit

from conformance.core.errors import ConformanceError

MOST_REQUESTS = 1000
"""Requests to a server elsewhere, unless the user allows more."""

_URL, _MODEL, _MOST = "CONFORMANCE_URL", "CONFORMANCE_SERVED_MODEL", "CONFORMANCE_REQUESTS"


@dataclass(frozen=True)
class NamedServer:
    """A server and what may be asked of it.

    Attributes:
        url: with scheme, host and port, without the API's path.
        model: the name that it has for its model; empty: the first that it names.
        most: the bound on requests; ``None`` for one of this machine.
    """

    url: str
    model: str = ""
    most: int | None = None


def use(url: str, *, model: str = "", remote: bool = False, most: int | None = None) -> NamedServer:
    """Let this process and those that it starts ask the server at ``url``.

    Args:
        remote: it may be another machine's; ``most`` requests are made then at most.

    Raises:
        ConformanceError: it is no URL of a server, or that of another machine without ``remote``.
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
