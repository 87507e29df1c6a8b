"""One process of a group: it holds a part of the model and makes the calls of the engine.

The process gets its rank and the addresses of the others, as from ``mlx.launch``. All processes of
a group get the same calls in the same order, so each has the same requests and draws the same
tokens. Arguments: the socket of the engine's process, and the way to split a model.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import queue
import sys
import threading
from multiprocessing.connection import Client, Connection
from typing import Any

import mlx.core as mx
from mlx_lm import utils

from conformance.backend.metering import attach_meter
from conformance.core.engine import Submission
from conformance.core.engine_options import EngineOptions
from conformance.core.errors import Unsupported
from conformance.core.failures import failure_of
from conformance.core.faults.declaration import Fault, Hits
from conformance.core.faults.patching import replace
from conformance.core.mends import Mend
from conformance.core.phases import ForwardCall
from conformance.plugins.distributed.messages import PIPELINE, Call, Reply, State
from conformance.plugins.mlx_lm.engine import MlxLmEngine

# The errors of mlx and mlx-lm for sizes that are not divisible by the number of processes.
_INDIVISIBLE = (
    "Cannot shard the ",
    "cannot be sharded across",
    "does not result in sub arrays with equal size",
    "must be positive and sum to",
)


_MARK = 7_340_033  # a number that no model sends


class Seat:
    """The state of one process: its part of a model, and an engine on it while there is one."""

    def __init__(self, how: str) -> None:
        self._how = how
        self._model: Any = None
        self._meter: list[ForwardCall] = []
        self._engine: MlxLmEngine | None = None
        self._inside = contextlib.ExitStack()
        self._hits: list[Hits] = []
        self._prefixes: list[Any] = []

    def load(self, folder: str, *, trusted: bool) -> None:
        """Load this process's part of the model, by the library's own ``sharded_load``."""
        self._model = None
        group = mx.distributed.init(strict=True, backend="ring")
        pipeline, tensor = (group, None) if self._how == PIPELINE else (None, group)
        with replace(utils, "load_tokenizer", _no_tokenizer):
            try:
                model, _ = utils.sharded_load(folder, pipeline, tensor, trust_remote_code=trusted)
            except ValueError as error:
                if any(words in str(error) for words in _INDIVISIBLE):
                    raise Unsupported(f"this division is not supported: {error}") from error
                raise
        model.eval()
        self._model, self._meter = model, attach_meter(model)

    def make(self, options: EngineOptions, places: tuple[str, ...]) -> None:
        """Make an engine, with the faults and mends at these places active in the process."""
        self.close()
        self._hits = [Hits() for _ in places]
        for place, hits in zip(places, self._hits, strict=True):
            module, _, name = place.partition(":")
            found: Fault | Mend = getattr(importlib.import_module(module), name)
            self._inside.enter_context(
                found.inject(hits) if isinstance(found, Fault) else found.repair(hits)
            )
        mx.random.seed(0)  # all processes draw the same
        self._meter.clear()
        self._engine = MlxLmEngine(self._model, options)

    def insert(self, submissions: list[Submission], prefixes: list[int | None]) -> None:
        """``Engine.insert``; a prefix is the number that ``extract`` returned."""
        given = [
            Submission(s.request, s.forced, None if n is None else self._prefixes[n], s.hints)
            for s, n in zip(submissions, prefixes, strict=True)
        ]
        self._made.insert(given)

    def extract(self, request_id: str) -> int:
        """``Engine.extract``: keep the cache here; returns its number."""
        self._prefixes.append(self._made.extract(request_id))
        return len(self._prefixes) - 1

    def ask(self, name: str, *args: Any, **options: Any) -> Any:
        """Call any other method of the engine."""
        return getattr(self._made, name)(*args, **options)

    def close(self) -> bool:
        """End the engine, if there is one, and take out its faults and mends.

        Returns whether the ring between the processes is empty: the next model would read whatever
        is left there.
        """
        engine, self._engine = self._engine, None
        self._prefixes.clear()
        try:
            if engine is not None:
                engine.close()
        finally:
            self._inside.close()
        return self._passes()

    def _passes(self) -> bool:
        """Whether each process reads exactly what the previous one sends now."""
        group = mx.distributed.init(strict=True, backend="ring")
        rank, size = group.rank(), group.size()
        own, read = mx.full((4,), rank + _MARK), mx.full((4,), rank + 1 + _MARK)
        if rank < size - 1:  # like a pipeline: from the last to the first
            read = mx.distributed.recv_like(own, rank + 1)
            mx.eval(read)
        if rank > 0:
            mx.eval(mx.distributed.send(own, rank - 1))
        all_read = mx.distributed.all_gather(own[:1])
        right = (read == rank + 1 + _MARK).all() & (all_read == mx.arange(size) + _MARK).all()
        return bool(right)

    def reply(self, call: Call) -> Reply:
        """Make the call; an exception becomes part of the reply."""
        value, failure = None, None
        try:
            value = getattr(self, call.name)(*call.args, **call.options)
            state = self._state()
        except Exception as error:  # noqa: BLE001 - the engine's process raises it again
            failure, state = failure_of(error, call.name, theirs=True), State()
        forwards = tuple(self._meter)
        self._meter.clear()
        return Reply(value, state, forwards, failure, tuple(hits.count for hits in self._hits))

    def _state(self) -> State:
        engine = self._engine
        if engine is None:
            return State()
        return State(engine.stages(), engine.rows(), engine.cache_bytes(), tuple(engine.layers()))

    @property
    def _made(self) -> MlxLmEngine:
        assert self._engine is not None, "an engine is made first"
        return self._engine


def _no_tokenizer(*_: Any, **__: Any) -> None:
    """Replaces the loading of a tokenizer: families have none, and requests are tokens."""


def main() -> None:
    """Serve the engine's process until it closes its end."""
    address, how = sys.argv[1:]
    if sys.platform == "linux":  # it may have been started by a process on one core
        os.sched_setaffinity(0, range(os.cpu_count() or 1))
    connection = Client(address, family="AF_UNIX")
    connection.send(int(os.environ["MLX_RANK"]))
    calls: queue.SimpleQueue[Call] = queue.SimpleQueue()
    threading.Thread(target=_receive, args=(connection, calls), daemon=True).start()
    seat = Seat(how)
    while True:
        connection.send(seat.reply(calls.get()))


def _receive(connection: Connection[Any, Any], calls: queue.SimpleQueue[Call]) -> None:
    """Read in a thread, so that this process ends with the engine's even while it awaits a rank."""
    while True:
        try:
            calls.put(connection.recv())
        except (EOFError, OSError):
            os._exit(0)


if __name__ == "__main__":
    main()
