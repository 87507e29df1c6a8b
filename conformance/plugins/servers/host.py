"""Forks servers from a process that has already imported their modules, which takes seconds.

Arguments: names of modules to import. Stdin is a socket that receives one message for each server:
its command as JSON, with a socket of the server's own. A watchdog process between this process and
each server writes its own process id to that socket, later the server's exit code, and ends the
server once the other end is closed.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import runpy
import signal
import socket
import sys
import threading
import time
import traceback
from typing import Any

_LONGEST = 2**20  # bytes of a message
_PATIENCE_SECONDS = 3.0
_GROUP_SECONDS = 0.5
_SIGNALLED = 128  # plus the signal's number, as shells report it


def main() -> None:
    """Import the modules, then fork for each message until the other end is closed."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    for name in sys.argv[1:]:
        importlib.import_module(name)
    # A server collects garbage after each answer: nothing that is imported here is any.
    gc.collect()
    gc.freeze()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # no process waits for a watchdog
    asked = socket.socket(fileno=0)
    while True:
        message, own, _, _ = socket.recv_fds(asked, _LONGEST, 1)
        if not message:
            os._exit(0)
        if os.fork() == 0:
            os.dup2(os.open(os.devnull, os.O_RDONLY), asked.detach())
            _watch(json.loads(message), socket.socket(fileno=own[0]))
        os.close(own[0])


def _watch(wanted: dict[str, Any], own: socket.socket) -> None:
    """The watchdog: start the server and wait until it ends or the other end is closed."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    watchdog = os.getpid()
    own.sendall(f"{watchdog}\n".encode())
    server = os.fork()
    if server == 0:
        own.close()
        _serve(wanted, watchdog)
    with contextlib.suppress(OSError):
        os.setpgid(server, server)
    threading.Thread(target=_follow, args=(server, own), daemon=True).start()
    with contextlib.suppress(OSError):
        while own.recv(1):
            pass
    with contextlib.suppress(OSError):
        os.kill(server, signal.SIGTERM)
    time.sleep(_PATIENCE_SECONDS)  # unless the server ends before
    _end_group(server)
    os._exit(_SIGNALLED + signal.SIGKILL)


def _follow(server: int, own: socket.socket) -> None:
    """Wait for the server's end; then end its processes and this one."""
    code = os.waitstatus_to_exitcode(os.waitpid(server, 0)[1])
    _end_group(server)
    with contextlib.suppress(OSError):
        own.sendall(f"{code if code >= 0 else _SIGNALLED - code}\n".encode())
    os._exit(0)


def _end_group(server: int) -> None:
    """End the group; a compiler removes its files if it may end by itself."""
    with contextlib.suppress(OSError):
        os.killpg(server, signal.SIGTERM)
        until = time.monotonic() + _GROUP_SECONDS
        while time.monotonic() < until:
            os.killpg(server, 0)  # raises once the group has ended
            time.sleep(0.01)
    with contextlib.suppress(OSError):
        os.killpg(server, signal.SIGKILL)


def _serve(wanted: dict[str, Any], watchdog: int) -> None:
    """Become the server: set output, environment, arguments; run its module like ``-m``."""
    code = 1
    try:
        with contextlib.suppress(OSError):
            os.setpgid(0, 0)
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_DFL)
        import ctypes  # noqa: PLC0415 - not needed by this process itself

        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
        if os.getppid() != watchdog:  # the watchdog ended before
            return
        signal.signal(signal.SIGINT, signal.default_int_handler)
        _own_output(wanted["log"])
        os.chdir(wanted["folder"])
        os.environ.clear()
        os.environ.update(wanted["environment"])
        os.sched_setaffinity(0, wanted["cpus"])
        module, *arguments = wanted["command"]
        if not sys.flags.safe_path:  # else the first is the user's own, of PYTHONPATH
            sys.path[0] = wanted["folder"]
        sys.argv = [module, *arguments]
        runpy.run_module(module, run_name="__main__", alter_sys=True)
        code = 0
    except SystemExit as ended:
        code = _code_of(ended)
    except BaseException:  # noqa: BLE001 - printed as the interpreter does
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _own_output(log: str) -> None:
    output = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.dup2(output, 1)
    os.dup2(output, 2)
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]


def _code_of(ended: SystemExit) -> int:
    """The exit code as in the interpreter; a text is printed."""
    if ended.code is None or isinstance(ended.code, int):
        return ended.code or 0
    print(ended.code, file=sys.stderr)
    return 1


if __name__ == "__main__":
    main()
