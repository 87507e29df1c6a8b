"""Runs a server, and ends it with all that it started once the other end of stdin is closed.

Started by its path, without the package: the process that starts it holds the other end, which
closes however that process ends. Arguments: the file of the server's output, then its command.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading

_PATIENCE_SECONDS = 3.0
_SIGNALLED = 128  # plus the signal's number, as shells report it


def main() -> None:
    """Run the command until it or the one that started this has ended."""
    # Its whole group is ended here; a Ctrl-C in the terminal does not reach another session.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    log, *command = sys.argv[1:]
    with open(log, "ab") as output:  # noqa: PTH123 - imports as little as possible
        server = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            preexec_fn=_usual,  # noqa: PLW1509 - there are no threads yet
        )
    threading.Thread(target=_follow, args=(server,), daemon=True).start()
    while sys.stdin.buffer.read(1):
        pass
    server.terminate()
    with contextlib.suppress(subprocess.TimeoutExpired):
        server.wait(_PATIENCE_SECONDS)
    os.killpg(0, signal.SIGKILL)  # this process with them


def _usual() -> None:
    """In the server's process: signals as usual, and no life without this one, on Linux."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)
    if sys.platform == "linux":
        import ctypes  # noqa: PLC0415

        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


def _follow(server: subprocess.Popen[bytes]) -> None:
    code = server.wait()
    os._exit(code if code >= 0 else _SIGNALLED - code)


if __name__ == "__main__":
    main()
