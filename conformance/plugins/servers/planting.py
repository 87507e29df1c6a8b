"""A fault in a server's process: the server is started by ``launch``, which enters it there.

Inside the context that ``planted`` gives, servers are started so; outside of it as a user does.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_PLANTED: ContextVar[str] = ContextVar("planted", default="")


def current() -> str:
    """The fault that is planted now, as ``module:name``; empty if none is."""
    return _PLANTED.get()


@contextmanager
def planted(place: str) -> Iterator[None]:
    """Servers have the fault ``place``, a context manager ``module:name``, inside of the block."""
    token = _PLANTED.set(place)
    try:
        yield
    finally:
        _PLANTED.reset(token)


def python(module: str) -> list[str]:
    """The command that runs a server's module."""
    if not current():
        return [sys.executable, "-m", module]
    return [sys.executable, "-m", "conformance.plugins.servers.launch", current(), module]
