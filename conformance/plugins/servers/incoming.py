"""Reads a server's replies for the requests that are still open."""

from __future__ import annotations

import queue
import time
from collections.abc import Container

from conformance.plugins.servers.asking import Asking, Came


class Incoming:
    """Reads the queue of events, and keeps events that are not wanted yet."""

    def __init__(self, asking: Asking) -> None:
        self._asking = asking
        self._waiting: list[Came] = []

    def next(self, wanted: Container[str], seconds: float) -> Came | None:
        """The next event of a wanted request; ``None`` if there is none within ``seconds``."""
        if self._waiting:
            return self._waiting.pop(0)
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            try:
                came = self._asking.came.get(timeout=left)
            except queue.Empty:
                return None
            if came.name in wanted:
                return came
        return None

    def drain(self, wanted: Container[str]) -> None:
        """Keep only the events of wanted requests, after a removal."""
        while True:
            try:
                self._waiting.append(self._asking.came.get_nowait())
            except queue.Empty:
                break
        self._waiting = [came for came in self._waiting if came.name in wanted]
