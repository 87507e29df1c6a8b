"""The server that the user names, passed to all processes of a run in the environment."""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Sequence
from urllib.parse import urlsplit

import msgspec

from conformance.core.engine import Capability
from conformance.core.errors import ConformanceError

MOST_REQUESTS = 1000
"""The most requests to a server elsewhere, unless the user allows more."""

OFFERED = (
    Capability.CANCEL,
    Capability.LATE_JOIN,
    Capability.MODELS,
    Capability.PROBES,
    Capability.SCHEMAS,
    Capability.SLOTS,
    Capability.STOP,
)
"""What a server at a URL is taken to offer, unless the user says otherwise."""

_VARIABLE = "CONFORMANCE_SERVER"


class NamedServer(msgspec.Struct, frozen=True, omit_defaults=True):
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
    not_offered: tuple[Capability, ...] = ()

    @property
    def options(self) -> tuple[str, ...]:
        """The options of a command that asks this server in the same way."""
        found = ["--url", self.url]
        found += ["--model", self.model] if self.model else []
        found += ["--remote"] if self.remote else []
        found += ["--requests", str(self.most)] if self.most is not None else []
        found += ["--not-offered", ",".join(self.not_offered)] if self.not_offered else []
        return tuple(found)


def use(
    url: str,
    *,
    model: str = "",
    remote: bool = False,
    most: int | None = None,
    not_offered: Sequence[Capability] = (),
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
    os.environ[_VARIABLE] = msgspec.json.encode(server).decode()
    return server


def named() -> NamedServer:
    """The server that the user named.

    Raises:
        ConformanceError: there is none.
    """
    text = os.environ.get(_VARIABLE)
    if not text:
        raise ConformanceError("the engine http asks the server that --url names; add --url")
    return msgspec.json.decode(text, type=NamedServer)


def _is_local(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
