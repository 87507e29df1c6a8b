"""Runs a server, and ends it with its child processes once the other end of stdin is closed.

It is started by its path, without the package. The process that starts it holds the other end,
which closes however that process ends. Arguments: the server's output file, then its command.
"""

from __future__ import annotations

import contextlib
import functools
import os
import signal
import subprocess
import sys
import threading
import time

_PATIENCE_SECONDS = 3.0
_GROUP_SECONDS = 0.5
_SIGNALLED = 128  # plus the signal's number, as shells report it


def main() -> None:
    """Run the command until it ends or the process that started this one has ended."""
    # A Ctrl-C in the terminal is for the process that started this one.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    log, *command = sys.argv[1:]
    with open(log, "ab") as output:  # noqa: PTH123 - imports as little as possible
        server = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            process_group=0,  # so that it can be ended with its child processes
            preexec_fn=functools.partial(_usual, os.getpid()),  # noqa: PLW1509 - there are no threads yet
        )
    threading.Thread(target=_follow, args=(server,), daemon=True).start()
    while sys.stdin.buffer.read(1):
        pass
    server.terminate()
    time.sleep(_PATIENCE_SECONDS)  # unless the server ends before
    _end_group(server)
    os._exit(_SIGNALLED + signal.SIGKILL)


def _usual(watchdog: int) -> None:
    """In the server's process: restore signals and, on Linux, end with the watchdog."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)
    if sys.platform == "linux":
        import ctypes  # noqa: PLC0415

        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
    if os.getppid() != watchdog:  # the watchdog ended before
        os._exit(1)


def _follow(server: subprocess.Popen[bytes]) -> None:
    """Wait for the server's end; then end its processes and this one."""
    code = server.wait()
    _end_group(server)
    os._exit(code if code >= 0 else _SIGNALLED - code)


def _end_group(server: subprocess.Popen[bytes]) -> None:
    """End the group; a compiler removes its files if it may end by itself."""
    with contextlib.suppress(OSError):
        os.killpg(server.pid, signal.SIGTERM)
        until = time.monotonic() + _GROUP_SECONDS
        while time.monotonic() < until:
            os.killpg(server.pid, 0)  # raises once the group has ended
            time.sleep(0.01)
    with contextlib.suppress(OSError):
        os.killpg(server.pid, signal.SIGKILL)


if __name__ == "__main__":
    main()
