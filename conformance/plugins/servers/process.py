"""Starts, awaits, reads and ends a server in its own process, on a free loopback port."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping, Sequence
from pathlib import Path

import httpx2
import psutil

from conformance.core.errors import ModelError
from conformance.core.first_signals import at_exit
from conformance.core.http_clients import get
from conformance.plugins.servers.forking import Forked, Watched, host_of

HOST = "127.0.0.1"
READY_SECONDS = 300.0
"""The longest time until a server answers."""
_LOOK_SECONDS, _ASK_SECONDS, _END_SECONDS = 0.1, 5.0, 10.0
_TRIES = 3
_TAIL = 4000  # characters of a log in a message
_TAKEN = re.compile(r"address already in use|errno 98|errno 48", re.IGNORECASE)
_LOG = "server.log"

Command = Callable[[Path, int], Sequence[str]]
"""Makes the command of a server from a checkpoint's folder and a port."""


class ServerError(ModelError):
    """A server did not start, does not answer, or ended; the message has the end of its log."""


class ManagedServer:
    """A running server.

    Attributes:
        url: the server's address.
        folder: a temporary folder for its checkpoint and its log, removed with the server.
    """

    def __init__(self, process: Watched | Forked, folder: Path, port: int) -> None:
        self._process = process
        self.folder = folder
        self.url = f"http://{HOST}:{port}"

    @property
    def code(self) -> int | None:
        """The exit code of a server that has ended by itself; ``None`` while it runs."""
        return self._process.poll()

    def code_within(self, seconds: float) -> int | None:
        """The exit code, after waiting up to ``seconds``; ``None`` if the server still runs."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(seconds)
        return self.code

    def memory(self) -> int | None:
        """Bytes of memory of the server and its child processes; ``None`` if it has ended."""
        try:
            found = psutil.Process(self._process.pid).children(recursive=True)
            return sum(process.memory_info().rss for process in found) or None
        except psutil.Error:
            return None

    def log(self) -> str:
        """The server's output so far."""
        with contextlib.suppress(OSError):
            return (self.folder / _LOG).read_text(encoding="utf-8", errors="replace")
        return ""

    def stop(self) -> None:
        """End the server and its child processes and remove its folder; again does nothing."""
        self._process.leave()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_END_SECONDS)
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)


def start(
    write: Callable[[Path], object],
    command: Command,
    *,
    environment: Mapping[str, str],
    health: str,
    seconds: float = READY_SECONDS,
    imported: Sequence[str] = (),
) -> ManagedServer:
    """Start a server on the checkpoint that ``write`` writes, and wait until ``health`` answers.

    Args:
        imported: modules that a server imports. If forks are safe, one process imports them for
            all servers, and ``command`` must run a module.

    Raises:
        ServerError: the server ended before it answered, could not load the model, or did not
            answer within ``seconds``.
    """
    folder = Path(tempfile.mkdtemp(prefix="conformance-server-"))
    try:
        write(folder)
        for attempt in range(1, _TRIES + 1):
            port = free_port()
            process = _begin(folder, command(folder, port), environment, imported)
            server = ManagedServer(process, folder, port)
            if _answers(server, health, seconds, again=attempt < _TRIES):
                return server
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    raise AssertionError("unreachable")


def _answers(server: ManagedServer, health: str, seconds: float, *, again: bool) -> bool:
    """Whether it answers; with ``again``, ``False`` if another program has taken its port."""
    try:
        _await(server, health, seconds)
    except ServerError:
        # Another program may have taken the port since it was found free.
        if again and _TAKEN.search(server.log()):
            _end_process(server)
            return False
        server.stop()
        raise
    except BaseException:
        server.stop()
        raise
    return True


def _end_process(server: ManagedServer) -> None:
    (server.folder / _LOG).unlink(missing_ok=True)
    server._process.wait()


def _begin(
    folder: Path, command: Sequence[str], environment: Mapping[str, str], imported: Sequence[str]
) -> Watched | Forked:
    host = host_of(imported, environment)
    if host is not None and list(command[:2]) == [sys.executable, "-m"]:
        with contextlib.suppress(OSError):  # the server may have ended
            return host.fork(command[2:], folder, folder / _LOG, environment)
    watchdog = Path(__file__).parent / "watchdog.py"
    return Watched(
        [sys.executable, "-S", "-E", str(watchdog), str(folder / _LOG), *command],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        env=dict(environment),
        cwd=folder,
    )


def _await(server: ManagedServer, health: str, seconds: float) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if server.code is not None:
            raise ServerError(
                f"the server ended with exit code {server.code} before it answered: "
                f"{last_traceback(server.log()) or last_line(server.log())}"
            )
        with contextlib.suppress(httpx2.HTTPError):
            status = get(server.url + health, _ASK_SECONDS).status_code
            if status == httpx2.codes.OK:
                return
            # The model is loaded in a thread, which may have failed.
            if error := last_traceback(server.log()):
                raise ServerError(f"the server answers with HTTP {status} at {health}: {error}")
        time.sleep(_LOOK_SECONDS)
    raise ServerError(
        f"the server did not answer at {server.url}{health} within {seconds:.0f} s: "
        f"{last_line(server.log())}"
    )


def free_port() -> int:
    """A port that no program uses now."""
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        port: int = probe.getsockname()[1]
        return port


def last_line(log: str) -> str:
    """The last line of a log that is not empty."""
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    return lines[-1][-_TAIL:] if lines else "its log is empty"


# Where a server says that its thread has ended, by an exception that it logged before.
_NO_THREAD = "generation thread"


def last_traceback(log: str, *, aside: tuple[str, ...] = ()) -> str:
    """The last traceback of a log, shortened to its last two places and the exception.

    If it says that the generating thread has ended, the first one, which ended it.

    Args:
        aside: the beginnings of exceptions to ignore.
    """
    found = first = ""
    for rest in log.split("Traceback (most recent call last):")[1:]:
        places = re.findall(r'File "([^"]+)", line (\d+), in (\S+)', rest)
        error = next((line for line in rest.splitlines()[1:] if line and line[0] not in " \t"), "")
        shown = [f"{'/'.join(Path(p).parts[-3:])}:{n} in {f}" for p, n, f in places[-2:]]
        if not error.startswith(aside or ("\0",)):
            found = f"{error.strip()[:_TAIL]} [{', '.join(shown)}]"
            first = first or found
    return first if _NO_THREAD in found else found


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
