"""Runs a case in a process of its own, if a known defect ends the process that runs it.

The crash then becomes a verdict instead of ending the worker, which can run the case with the
defect mended. A case that lost its worker's device is also tried again in its own process, with all
that follows from it. Where forking after imports is safe, the processes are forks of one that has
imported the libraries and run nothing; elsewhere each starts Python from scratch, in seconds.
"""

from __future__ import annotations

import contextlib
import faulthandler
import os
import pickle
import select
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from types import ModuleType

import psutil
import pytest

from conformance.app.pytest_plugin.device_memory import with_device
from conformance.app.pytest_plugin.setup import Setup, make_setup
from conformance.app.pytest_plugin.worker_crashes import condense, crashed
from conformance.app.run_settings import Settings
from conformance.backend.device import device_name
from conformance.core.errors import ConformanceError, MachineError
from conformance.core.failures import full_device
from conformance.core.processes import describe_exit, end_tree
from conformance.core.verdict import CaseId, CaseResult, decode, encode
from conformance.core.watched_child import end_with_parent
from conformance.run.hosting import brings_hooks, load_plugins

_SERVER = "from conformance.app.pytest_plugin.own_process import serve; serve({folder!r}, {parent})"
# In the server's folder: the request for all cases, and the server's output.
_SETTINGS, _PRINTED = "settings", "printed"
# In a case's folder: the request, the answer, and other files that the process leaves.
_ASKED, _RELEASED, _BEGUN, _ANSWER, _CRASH = "asked", "released", "begun", "answer", "crash"
_LOOK_SECONDS, _REAP_SECONDS = 0.02, 2.0


def ends_process(setup: Setup, case: CaseId) -> bool:
    """Whether a known defect ends the process that runs the case as released."""
    if setup.expectations is None or setup.settings.checkpoint is not None:
        return False
    versions = setup.registry.versions_of(case.engine)
    device = setup.registry.libraries[setup.library_of(case)].device()
    return any(entry.ends(case, versions, device) for entry in setup.expectations.defects)


def played_apart(
    setup: Setup, case: CaseId, config: pytest.Config, released: CaseResult | None = None
) -> CaseResult:
    """The case as released, from a process of its own; a crash if that process ended.

    Args:
        released: the result as released; if given, it is judged, mended and diagnosed there.

    Raises:
        ConformanceError: the process ended before it could begin with the case.
        MachineError: as above, because the GPU lacks the memory for it next to the workers.
    """
    started = time.perf_counter()
    server = _server(setup, config)
    with tempfile.TemporaryDirectory(prefix="conformance-") as name:
        folder = Path(name)
        (folder / _ASKED).write_text(str(case), encoding="utf-8")
        if released is not None:
            (folder / _RELEASED).write_text(encode(released), encoding="utf-8")
        code = server.exit_code(folder)
        if (folder / _ANSWER).is_file():
            return decode((folder / _ANSWER).read_text(encoding="utf-8"))
        if not (folder / _BEGUN).is_file():
            why = server.last_line() or describe_exit(code)
            if full := full_device(why):
                raise MachineError(f"{case}: no process of its own could begin, as {full}")
            raise ConformanceError(f"{case}: its own process could not begin: {why}")
        place = condense((folder / _CRASH).read_text(encoding="utf-8", errors="replace"))
    seconds = time.perf_counter() - started
    return crashed(setup, case, seconds, place, ended=describe_exit(code))


class _Server:
    """The process from which the processes of cases are forked; started on demand."""

    def __init__(self, settings: Settings, plugins: list[str]) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="conformance-")
        self._path = Path(self._folder.name)
        (self._path / _SETTINGS).write_bytes(pickle.dumps((settings, plugins)))
        self._process: subprocess.Popen[bytes] | None = None

    def exit_code(self, folder: Path) -> int:
        """Run the case in the folder; return the exit code of the process that ran it."""
        if self._process is None:
            self._process = self._start()
        try:
            return self._asked(self._process, folder)
        except BaseException:  # the timeout of the case is an exception
            self._end()
            raise

    def _asked(self, process: subprocess.Popen[bytes], folder: Path) -> int:
        assert process.stdin is not None  # both are pipes
        assert process.stdout is not None
        with contextlib.suppress(BrokenPipeError):  # the server could not begin
            process.stdin.write(f"{folder}\n".encode())
            process.stdin.flush()
        if answer := process.stdout.readline():
            return int(answer)
        self._process = None
        return process.wait()

    def _start(self) -> subprocess.Popen[bytes]:
        code = _SERVER.format(folder=str(self._path), parent=os.getpid())
        with (self._path / _PRINTED).open("wb") as printed:
            return subprocess.Popen(
                [sys.executable, "-c", code],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=printed,
            )

    def last_line(self) -> str:
        """The last line of the server's output."""
        text = (self._path / _PRINTED).read_text(encoding="utf-8", errors="replace")
        return (text.splitlines() or [""])[-1]

    def _end(self) -> None:
        if self._process is not None and self._process.poll() is None:
            server = psutil.Process(self._process.pid)
            children = server.children(recursive=True)
            for child in children:
                end_tree(child)
            psutil.wait_procs(children, timeout=_REAP_SECONDS)  # the server waits for its own
            end_tree(server)
            self._process.wait()
        self._process = None

    def close(self) -> None:
        """End the server, and remove its folder."""
        self._end()
        self._folder.cleanup()


_KEY = pytest.StashKey[_Server]()


def _server(setup: Setup, config: pytest.Config) -> _Server:
    """The server of this process; it ends with the run."""
    if _KEY not in config.stash:
        plugins = [p for p in config.pluginmanager.get_plugins() if brings_hooks(p)]
        names = [plugin.__name__ for plugin in plugins if isinstance(plugin, ModuleType)]
        config.stash[_KEY] = _Server(setup.settings, names)
        config.add_cleanup(config.stash[_KEY].close)
    return config.stash[_KEY]


def serve(folder: str, parent: int) -> None:
    """In the server: run the case of each folder that is named on standard input.

    The answer is the exit code of the case's process. If forking is unsafe, the server runs one
    case itself, and ends.
    """
    answers = os.dup(1)
    os.dup2(2, 1)  # keeps output of libraries apart from the answers
    settings, names = pickle.loads((Path(folder) / _SETTINGS).read_bytes())
    setup = make_setup(settings, load_plugins(names))
    if not _forks():
        end_with_parent(parent)
        _play(setup, Path(os.read(0, 4096).decode().rstrip("\n")))
        return
    while asked := os.read(0, 4096):
        server = os.getpid()
        child = os.fork()
        if not child:
            end_with_parent(server)
            _play(setup, Path(asked.decode().rstrip("\n")))
            os._exit(0)
        os.write(answers, f"{_exit_code(child)}\n".encode())


def _forks() -> bool:
    """Whether forking is safe: not with threads of system libraries, nor with CUDA's context."""
    return sys.platform == "linux" and device_name().startswith("cpu")


def _exit_code(child: int) -> int:
    """The exit code of a child once it has ended; if the parent ends, all processes end."""
    while True:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status)
        if select.select([0], [], [], _LOOK_SECONDS)[0]:
            end_tree(psutil.Process())


def _play(setup: Setup, place: Path) -> None:
    """Run the case requested in a folder, and write the result there."""
    case = CaseId.parse((place / _ASKED).read_text(encoding="utf-8"))
    with (place / _CRASH).open("w", encoding="utf-8") as file:
        faulthandler.enable(file=file)
        (place / _BEGUN).touch()
        if (place / _RELEASED).is_file():
            released = decode((place / _RELEASED).read_text(encoding="utf-8"))
            result = setup.judge.diagnosed(case, setup.judge.judged(case, released))
        else:
            result = with_device(setup.session.run(case))
        faulthandler.disable()
    part = place / f"{_ANSWER}.part"
    part.write_text(encode(result), encoding="utf-8")
    part.rename(place / _ANSWER)
