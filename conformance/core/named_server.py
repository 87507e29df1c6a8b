"""The server that the user names, passed to all processes of a run in the environment."""

from __future__ import annotations

import ipaddress
import json
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from urllib.parse import urlsplit

from conformance.core.errors import ConformanceError

MOST_REQUESTS = 1000
"""The most requests to a server elsewhere, unless the user allows more."""

OFFERED = ("cancel", "late_join", "messages", "models", "probes", "schemas", "slots", "stop")
"""What a server at a URL is taken to offer, unless the user says otherwise: capabilities."""

_VARIABLE = "CONFORMANCE_SERVER"


@dataclass(frozen=True)
class NamedServer:
    """A server and its limits.

    Attributes:
        url: with scheme, host and port, without the API's path.
        model: the server's name of its model; empty: the first model that it lists.
        most: the limit on requests; ``None`` for a server on this machine.
        remote: it may be on another machine.
        not_offered: what the user says that it does not have.
    """

    url: str
    model: str = ""
    most: int | None = None
    remote: bool = False
    not_offered: tuple[str, ...] = ()


def use(
    url: str,
    *,
    model: str = "",
    remote: bool = False,
    most: int | None = None,
    not_offered: Sequence[str] = (),
) -> NamedServer:
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
    server = NamedServer(base, model, bound, not local, tuple(sorted(not_offered)))
    os.environ[_VARIABLE] = json.dumps(asdict(server))
    return server


def named() -> NamedServer:
    """The server that the user named.

    Raises:
        ConformanceError: there is none.
    """
    text = os.environ.get(_VARIABLE)
    if not text:
        raise ConformanceError("the engine http asks the server that --url names; add --url")
    found = json.loads(text)
    return NamedServer(**{**found, "not_offered": tuple(found["not_offered"])})


def options() -> tuple[str, ...]:
    """The options that name the server, for commands that ask it again; empty if there is none."""
    if not os.environ.get(_VARIABLE):
        return ()
    server = named()
    found = ["--url", server.url, *(["--model", server.model] if server.model else [])]
    found += ["--remote"] if server.remote else []
    if server.most != (MOST_REQUESTS if server.remote else None):
        found += ["--requests", str(server.most)]
    found += ["--not-offered", ",".join(server.not_offered)] if server.not_offered else []
    return tuple(found)


def _is_local(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
