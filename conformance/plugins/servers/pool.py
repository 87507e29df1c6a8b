"""Keeps the servers of this process for the next schedule and ends them with the process."""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Callable, Hashable

from conformance.core.first_signals import at_exit
from conformance.plugins.servers.process import ManagedServer

KEPT = 2
"""The number of recent servers to keep; each takes the memory of a model and its library."""


class Pool:
    """Servers by the key of how they were started."""

    def __init__(self) -> None:
        self._servers: OrderedDict[Hashable, ManagedServer] = OrderedDict()
        self._process = os.getpid()
        at_exit(self.close)

    def get(self, key: Hashable, start: Callable[[], ManagedServer]) -> ManagedServer:
        """The running server of this key; started if there is none."""
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
        """End the server of this key, so that ``get`` starts a new one."""
        self._own()
        if (found := self._servers.pop(key, None)) is not None:
            found.stop()

    def close(self) -> None:
        """End all servers."""
        self._own()
        while self._servers:
            self._servers.popitem()[1].stop()

    def _own(self) -> None:
        """Forget the servers of the parent in a forked process, and leave them alone."""
        if self._process != os.getpid():
            self._servers.clear()
            self._process = os.getpid()
