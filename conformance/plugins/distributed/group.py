"""Starts, calls and ends the processes of a group on this machine."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from multiprocessing.connection import Connection, Listener, wait
from pathlib import Path
from typing import Any

from conformance.core.errors import ModelError
from conformance.core.processes import describe_exit
from conformance.plugins.distributed.messages import Call, Reply

READY_SECONDS = 120.0
"""How long the processes may take until all of them answer."""
_END_SECONDS, _LOOK_SECONDS = 5.0, 0.2
_RANK = "conformance.plugins.distributed.rank"
_SOCKET = "group.sock"
_HOST = "127.0.0.1"


class GroupError(ModelError):
    """A process of the group ended, or the group did not start; the message has its last line."""


class Group:
    """Running processes, by rank.

    Args:
        size: the number of processes.
        how: the way in which a model is split over them.

    Attributes:
        folder: a temporary folder, removed with the processes.
        loaded: the loaded model, under the name that its engine gave it.

    Raises:
        GroupError: the processes could not be started.
    """

    def __init__(self, size: int, how: str) -> None:
        self.size, self.how = size, how
        self.loaded: object = None
        self.folder = Path(tempfile.mkdtemp(prefix="conformance-group-"))
        self._processes: list[subprocess.Popen[bytes]] = []
        self._ends: dict[int, Connection[Any, Any]] = {}
        self._listener = Listener(str(self.folder / _SOCKET), family="AF_UNIX", backlog=size)
        try:
            self._launch()
            self._await()
        except BaseException:
            self.close()
            raise

    @property
    def pids(self) -> tuple[int, ...]:
        """The process ids, by rank."""
        return tuple(process.pid for process in self._processes)

    def call(self, call: Call) -> tuple[Reply, ...]:
        """Make the same call in all processes; returns their replies, by rank.

        If one process fails, the others may wait for it for ever. Its reply is then the last one,
        and the group cannot be used again.

        Raises:
            GroupError: a process ended.
        """
        for rank, end in self._ends.items():
            try:
                end.send(call)
            except OSError as error:
                raise self._ended(rank, call) from error
        replies: dict[int, Reply] = {}
        while len(replies) < self.size:
            for rank in self._answered(replies):
                try:
                    replies[rank] = self._ends[rank].recv()
                except (EOFError, OSError) as error:
                    raise self._ended(rank, call) from error
            failed = [rank for rank, reply in replies.items() if reply.failure is not None]
            if failed and len(replies) < self.size and not self._answered(replies, _END_SECONDS):
                return (replies[failed[0]],)
        return tuple(replies[rank] for rank in sorted(replies))

    def close(self) -> None:
        """End all processes and remove their folder; a second call does nothing."""
        for end in self._ends.values():
            end.close()
        self._ends.clear()
        self._listener.close()
        for process in self._processes:
            process.kill()
            process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _launch(self) -> None:
        """Start the processes like ``mlx.launch`` with the ring backend: a file lists addresses.

        ``mlx.launch`` itself is not used because it occupies a processor core:
        mlx/_distributed_utils/launch.py:202 waits until its ranks take input, which they always do.
        """
        hosts = self.folder / "hosts.json"
        hosts.write_text(json.dumps([[f"{_HOST}:{port}"] for port in free_ports(self.size)]))
        command = [sys.executable, "-X", "faulthandler", "-m", _RANK]
        for rank in range(self.size):
            with self._log(rank).open("wb") as log:
                self._processes.append(
                    subprocess.Popen(
                        [*command, str(self.folder / _SOCKET), self.how],
                        stdin=subprocess.DEVNULL,
                        stdout=log,
                        stderr=log,
                        start_new_session=True,
                        env={**os.environ, "MLX_HOSTFILE": str(hosts), "MLX_RANK": str(rank)},
                    )
                )

    def _await(self) -> None:
        """Wait until each process has reported its rank."""
        end = time.monotonic() + READY_SECONDS
        incoming: Any = self._listener._listener._socket  # type: ignore[attr-defined]
        incoming.settimeout(_LOOK_SECONDS)
        while len(self._ends) < self.size:
            for rank, process in enumerate(self._processes):
                if process.poll() is not None:
                    raise GroupError(
                        f"rank {rank} of {self.size} did not begin: {self._said(rank)}"
                    )
            if time.monotonic() > end:
                raise GroupError(f"{self.size} processes did not begin in {READY_SECONDS:.0f} s")
            with contextlib.suppress(TimeoutError):
                connection = self._listener.accept()
                self._ends[connection.recv()] = connection
        self._ends = dict(sorted(self._ends.items()))

    def _answered(self, replies: dict[int, Reply], seconds: float | None = None) -> Sequence[int]:
        waiting = {end: rank for rank, end in self._ends.items() if rank not in replies}
        return [waiting[end] for end in wait(list(waiting), seconds)]  # type: ignore[index]

    def _ended(self, rank: int, call: Call) -> GroupError:
        """End the whole group: the remaining processes would wait for the one that ended."""
        code = ""
        with contextlib.suppress(subprocess.TimeoutExpired):
            code = describe_exit(self._processes[rank].wait(_END_SECONDS))
        said = self._said(rank)
        self.close()
        return GroupError(f"rank {rank} of {self.size} ended in {call.name}, {code}: {said}")

    def _log(self, rank: int) -> Path:
        return self.folder / f"rank{rank}.log"

    def _said(self, rank: int) -> str:
        text = self._log(rank).read_text(encoding="utf-8", errors="replace")
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        return lines[-1] if lines else "it said nothing"


def free_ports(count: int) -> list[int]:
    """``count`` ports that no program uses now."""
    with contextlib.ExitStack() as stack:
        probes = [stack.enter_context(socket.socket()) for _ in range(count)]
        for probe in probes:
            probe.bind((_HOST, 0))
        return [probe.getsockname()[1] for probe in probes]
