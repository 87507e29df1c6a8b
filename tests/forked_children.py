"""In a process of ``forked.py``: the Pythons that it starts with ``subprocess`` are forks, too.

A process with threads cannot be forked safely, so one that was forked before it had any does it.
The new process becomes a child of the one that asked for it, as any that ``subprocess`` starts: the
process in between ends, and Linux gives its children to an ancestor that adopts (prctl(2)).
"""

import contextlib
import ctypes
import fcntl
import inspect
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path

_SET_CHILD_SUBREAPER, _GET_CHILD_SUBREAPER = 36, 37
_STREAMS = ("p2cread", "c2pwrite", "errwrite")
_PIPES = ("p2cread", "p2cwrite", "c2pread", "c2pwrite", "errread", "errwrite")
# What is as in any process that subprocess starts; where it is not, one is started.
_USUAL = {"preexec_fn": None, "shell": False, "gid": None, "gids": None, "uid": None, "umask": -1}
_USUAL |= {"start_new_session": False, "process_group": -1}


def fork_children(become):
    """From now on, fork where this process starts a Python with ``-c``.

    Args:
        become: turns a new process into a program: its arguments, environment and folder.
    """
    forking = _Forking(become)

    def execute(process, *arguments):
        given = signature.bind(process, *arguments).arguments
        return forking.start(process, given) or started(process, *arguments)

    started = subprocess.Popen._execute_child
    signature = inspect.signature(started)
    subprocess.Popen._execute_child = execute
    os.register_at_fork(after_in_child=forking.begin_again)


class _Forking:
    """Starts processes by the one that forks."""

    def __init__(self, become):
        self._become, self._turn = become, threading.Lock()
        self._variables = _of_a_start(os.environ)
        self._begin()

    def _begin(self):
        self._own = 0  # in what is forked now, none
        self._here, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        if os.fork() == 0:
            self._here.close()
            signal.signal(signal.SIGINT, signal.SIG_IGN)  # it is for those that do something
            # What is forked from a thread has no caller of this in its stack.
            thread = threading.Thread(target=_fork_for_each, args=(there, self._become))
            thread.start()
            thread.join()
            os._exit(0)
        there.close()
        self._own = os.getpid()

    def begin_again(self):
        """In a fork of the process, as a command's own child is."""
        if self._own and threading.active_count() == 1:
            self._here.close()
            self._begin()

    def start(self, process, given):
        """Whether a ``Popen`` has its process now."""
        what = _fork_of(given)
        if what is None or os.getpid() != self._own or _of_a_start(what["env"]) != self._variables:
            return False
        # What is not redirected is that of this process.
        files = [given[n] if given[n] != -1 else k for k, n in enumerate(_STREAMS)]
        files += given["pass_fds"]
        with self._turn, _adopting():
            try:
                socket.send_fds(self._here, [json.dumps(what).encode()], files)
                answer = self._here.recv(32)
            except OSError:
                answer = b""
        if not answer:  # a signal to all ended it
            return False
        process.pid = int(answer)
        process._child_created = True
        process._close_pipe_fds(*(given[name] for name in _PIPES))
        return True


def _of_a_start(variables):
    """Those that Python reads as it starts, except the one that a fork obeys."""
    found = {name: value for name, value in variables.items() if name.startswith("PYTHON")}
    found.pop("PYTHONSAFEPATH", None)
    return found


def _fork_of(given):
    """What a fork needs to become this program; ``None`` where that is another."""
    if any(given.get(name, usual) != usual for name, usual in _USUAL.items()):
        return None
    program, *rest = given["args"] if isinstance(given["args"], list | tuple) else [given["args"]]
    while rest and rest[0] in ("-u", "-B"):
        rest = rest[1:]
    if program != sys.executable or given["executable"] is not None or rest[:1] != ["-c"]:
        return None
    environment = os.environ if given["env"] is None else given["env"]
    found = {"arguments": list(map(str, rest)), "env": dict(environment)}
    cwd = str(Path.cwd()) if given["cwd"] is None else os.fspath(given["cwd"])
    return {**found, "cwd": cwd, "kept": list(given["pass_fds"])}


@contextlib.contextmanager
def _adopting():
    library, before = ctypes.CDLL(None), ctypes.c_int()
    library.prctl(_GET_CHILD_SUBREAPER, ctypes.byref(before))
    library.prctl(_SET_CHILD_SUBREAPER, 1)
    yield
    library.prctl(_SET_CHILD_SUBREAPER, before.value)


def _fork_for_each(there, become):
    """Fork for each message, and answer with the number of the process."""
    while True:
        message, files, _, _ = socket.recv_fds(there, 1 << 20, 32)
        if not message:
            return
        read, write = os.pipe()
        begin, begun = os.pipe()
        between = os.fork()
        if between == 0:
            child = os.fork()
            if child == 0:
                os.close(begun)
                os.read(begin, 1)  # until it has the parent that it is to have
                _begin(json.loads(message), files, become)
            os.write(write, str(child).encode())
            os._exit(0)
        os.waitpid(between, 0)
        with contextlib.suppress(BrokenPipeError):
            there.send(os.read(read, 32))
        for file in (read, write, begin, begun, *files):
            os.close(file)


def _begin(what, files, become):
    """Turn this process into the program, with these files and no others."""
    numbers = [0, 1, 2, *what.pop("kept")]
    moved = [fcntl.fcntl(file, fcntl.F_DUPFD, 1 + max(numbers)) for file in files]
    for file, number in zip(moved, numbers, strict=True):
        os.dup2(file, number)
    for file in Path("/proc/self/fd").iterdir():
        if int(file.name) not in numbers:
            with contextlib.suppress(OSError):  # the folder's own
                os.close(int(file.name))
    signal.signal(signal.SIGINT, signal.default_int_handler)
    become(what)
