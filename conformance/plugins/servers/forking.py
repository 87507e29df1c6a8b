"""Server processes: forked from a host that has imported their modules, or started from scratch.

Either runs the server's own module like ``python -m``. The other side is in ``host``.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

_LONGEST = 64  # bytes of a watchdog's message
_HOST = "conformance.plugins.servers.host"


class Watched(subprocess.Popen[bytes]):
    """A watchdog that ends, with all processes it started, once its stdin is closed."""

    def leave(self) -> None:
        """Close the watchdog's stdin, so that it ends."""
        if self.stdin is not None:
            with contextlib.suppress(OSError):
                self.stdin.close()


class Forked:
    """The watchdog of a server that a host has forked, used as ``Watched`` is."""

    def __init__(self, own: socket.socket) -> None:
        self._own = own
        self._code: int | None = None
        self._said = b""
        while b"\n" not in self._said and self._code is None:
            self._read()
        self.pid = int(self._said.split(b"\n", 1)[0] or 0)

    def poll(self) -> int | None:
        """The server's exit code; ``None`` while it runs."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.wait(0.0)
        return self._code

    def wait(self, timeout: float | None = None) -> int:
        """The server's exit code once it has ended.

        Raises:
            TimeoutExpired: the server still runs.
        """
        try:
            while self._code is None:
                self._own.settimeout(timeout)
                self._read()
        except (BlockingIOError, TimeoutError) as error:
            raise subprocess.TimeoutExpired("the server", timeout or 0.0) from error
        return self._code

    def kill(self) -> None:
        """End the watchdog, and with it the server."""
        with contextlib.suppress(OSError):
            if self.pid:
                os.kill(self.pid, signal.SIGKILL)

    def leave(self) -> None:
        """Make the watchdog end the server."""
        with contextlib.suppress(OSError):
            self._own.shutdown(socket.SHUT_WR)

    def _read(self) -> None:
        """Read the watchdog's messages: its own process id, then the server's exit code."""
        try:
            new = self._own.recv(_LONGEST)
        except ConnectionError:
            new = b""
        self._said += new
        words = self._said.split(b"\n")
        if len(words) > 2:
            self._code = int(words[1])
        elif not new:
            self._code = -signal.SIGKILL
        if self._code is not None:
            self._own.close()


class Host:
    """A process that forks servers; it ends with this process."""

    def __init__(self, modules: Sequence[str], environment: Mapping[str, str]) -> None:
        self.process = os.getpid()
        self._asked, asked = socket.socketpair()
        with asked:
            self._host = subprocess.Popen(
                [sys.executable, "-m", _HOST, *modules],
                stdin=asked.fileno(),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
                env=dict(environment),
            )
        atexit.register(self.close)

    def close(self) -> None:
        """End the host; its servers keep running."""
        self._asked.close()
        if self.process == os.getpid():
            self._host.wait()

    def fork(
        self, command: Sequence[str], folder: Path, log: Path, env: Mapping[str, str]
    ) -> Forked:
        """Fork a server.

        Args:
            command: the module and its arguments.

        Raises:
            OSError: the host has ended.
        """
        wanted = {
            "command": list(command),
            "folder": str(folder),
            "log": str(log),
            "environment": dict(env),
            "cpus": sorted(os.sched_getaffinity(0)),
        }
        own, other = socket.socketpair()
        try:
            with other:
                socket.send_fds(self._asked, [json.dumps(wanted).encode()], [other.fileno()])
            forked = Forked(own)
            if not forked.pid:
                raise OSError("the host has ended")
        except OSError:
            self.close()
            raise
        return forked

    def runs(self) -> bool:
        """Whether the host runs and belongs to this process."""
        return self.process == os.getpid() and self._host.poll() is None


@functools.cache
def _hosts() -> dict[tuple[str, ...], Host]:
    """The hosts of this process, by their imported modules."""
    return {}


def host_of(modules: Sequence[str], environment: Mapping[str, str]) -> Host | None:
    """The host that has imported these modules; ``None`` without modules or safe forks."""
    if not modules or sys.platform != "linux":
        return None
    key = tuple(modules)
    found = _hosts().get(key)
    if found is None or not found.runs():
        found = _hosts()[key] = Host(modules, environment)
    return found
