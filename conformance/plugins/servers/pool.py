"""The servers that this process has started: kept for the next schedule, ended with the process."""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Callable, Hashable

from conformance.core.first_signals import at_exit
from conformance.plugins.servers.process import ManagedServer

KEPT = 2
"""Servers that stay, the last that were used; each takes the memory of a model and its library."""


class Pool:
    """Servers by what they were started with."""

    def __init__(self) -> None:
        self._servers: OrderedDict[Hashable, ManagedServer] = OrderedDict()
        self._process = os.getpid()
        at_exit(self.close)

    def get(self, key: Hashable, start: Callable[[], ManagedServer]) -> ManagedServer:
        """The server of that key; started if there is none that runs."""
        self._own()
        found = self._servers.pop(key, None)
        if found is not None and found.code is not None:
            found.stop()
            found = None
        if found is None:
            while len(self._servers) >= KEPT:
                self._servers.popitem(last=False)[1].stop()
            found = start()
        self._servers[key] = found
        return found

    def discard(self, key: Hashable) -> None:
        """End the server of that key, so that the next one is started anew."""
        self._own()
        if (found := self._servers.pop(key, None)) is not None:
            found.stop()

    def close(self) -> None:
        """End all servers."""
        self._own()
        while self._servers:
            self._servers.popitem()[1].stop()

    def _own(self) -> None:
        """A forked process has none of its own yet, and leaves those of its parent alone."""
        if self._process != os.getpid():
            self._servers.clear()
            self._process = os.getpid()
