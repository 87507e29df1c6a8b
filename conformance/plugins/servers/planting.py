"""What is put into a server's process: faults, mends, and the recording of its model's steps.

Patches are put in before the server's ``main`` runs. In this process, the context managers of
faults and mends only register the patches for servers started inside them. A step of a server is
one call of its generator's ``next``. Its line is written before any answer of the step is sent, so
that a client that has a token also finds the step that generated it.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import itertools
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from conformance.core.faults.declaration import Fault, Hits, Injection, fault
from conformance.core.faults.patching import Patch, Right, before, together, wrap
from conformance.core.mends import Mend, mend
from conformance.core.phases import ForwardCall, ServedStep

_HITS = "hits-{}"
_Read = TypeVar("_Read")


@dataclass(frozen=True)
class InServer:
    """An injection that takes effect in the process of a server.

    Attributes:
        patch: the context manager that the server's process finds by module and name, and enters.
    """

    patch: Injection

    @property
    def place(self) -> str:
        """``module:name``, by which the server's process finds the patch."""
        name = getattr(self.patch, "__name__", "")
        return f"{self.patch.__module__}:{name}"

    @contextlib.contextmanager
    def __call__(self, hits: Hits) -> Iterator[None]:
        """Servers that are requested inside the context have the patch."""
        planted = wanted()
        planted.append((self.place, hits))
        try:
            yield
        finally:
            planted.remove((self.place, hits))


@functools.cache
def wanted() -> list[tuple[str, Hits]]:
    """The places of the patches for servers now, with the counters of their effects."""
    return []


def served_fault(*args: str, engine: str, **fields: object) -> Callable[[Injection], Fault]:
    """``fault`` for a fault that takes effect in a server."""
    declare = fault(*args, engine=engine, **fields)  # type: ignore[arg-type]

    def made(patch: Injection) -> Fault:
        return replace(declare(patch), inject=InServer(patch))

    return made


def of_library(known: Fault, engine: str, *, name: str, kills: tuple[str, ...]) -> Fault:
    """A library's own fault for its server, where the server's scenarios must kill it."""
    return replace(known, name=name, engine=engine, kills=kills, inject=InServer(known.inject))


def served_mend(*defects: str) -> Callable[[Injection], Mend]:
    """``mend`` for a mend that takes effect in a server."""
    declare = mend(*defects)

    def made(patch: Injection) -> Mend:
        return replace(declare(patch), repair=InServer(patch))

    return made


def command(module: str, folder: Path, places: Sequence[str]) -> list[str]:
    """Python's arguments to run a server's module: like its users, or with the patches."""
    if not places:
        return ["-m", module]
    starting = "conformance.plugins.servers.starting"
    return ["-m", starting, str(folder), str(len(places)), *places, module]


def hits_file(folder: Path, index: int) -> Path:
    """The file to which a server's process writes a byte for each effect of this patch."""
    return folder / _HITS.format(index)


def hits_of(folder: Path, count: int) -> list[int]:
    """How often each of a server's patches has taken effect."""
    files = [hits_file(folder, index) for index in range(count)]
    return [file.stat().st_size if file.exists() else 0 for file in files]


_NAME = "steps.jsonl"


class _Line(msgspec.Struct):
    """A step: bytes of arrays before the step, and ``(batch, length)`` of each model call."""

    nbytes: int
    calls: list[tuple[int, int]]


def of_mlx_lm(hits: Hits) -> Patch:
    """The patch that records steps, and kept prompts, in the process of mlx-lm's server."""
    return together(_noted("mlx_lm.generate", hits), _kept(hits), _drafted(hits), _weighed(hits))


def of_mlx_vlm(hits: Hits) -> Patch:
    """The patch that records steps in the process of mlx-vlm's server."""
    return together(_noted("mlx_vlm.generate.ar", hits), _weighed(hits))


def _noted(module: str, hits: Hits) -> Patch:
    """Write the steps of the module's generator to a file next to the hits' file."""
    import mlx.core as mx  # noqa: PLC0415 - only in a server's process

    from conformance.backend.metering import attach_meter  # noqa: PLC0415

    generator = importlib.import_module(module).BatchGenerator
    place: Path = hits.file  # type: ignore[attr-defined]
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT
    file = os.open(place.with_name(_NAME), flags, 0o600)
    first = os.environ.get("MLX_RANK", "0") == "0"  # all processes of a group compute the same
    metered: dict[int, list[ForwardCall]] = {}

    def meter(_: Any, model: Any, *__: Any, **___: Any) -> None:
        if id(model) not in metered:
            metered[id(model)] = attach_meter(model)

    def step(right: Right, *args: Any, **options: Any) -> Any:
        nbytes = int(mx.get_active_memory())
        try:
            return right(*args, **options)
        finally:
            calls = [(call.batch, call.length) for found in metered.values() for call in found]
            for found in metered.values():
                found.clear()
            if calls and first:
                os.write(file, msgspec.json.encode(_Line(nbytes, calls)) + b"\n")

    return together(before(generator, "__init__", meter), wrap(generator, "next", step))


_KEPT = "kept.jsonl"


class Kept(msgspec.Struct, frozen=True):
    """The store of prompts when a request looked for its own, after the last answer was added.

    Attributes:
        count: sequences in it.
        nbytes: their bytes.
        last: bytes of the sequence that was added last.
    """

    count: int
    nbytes: int
    last: int


def _kept(hits: Hits) -> Patch:
    """Write what the store of prompts holds whenever a request looks for its own."""
    from mlx_lm.models.cache import LRUPromptCache  # noqa: PLC0415 - only in a server's process

    place: Path = hits.file  # type: ignore[attr-defined]
    file = os.open(place.with_name(_KEPT), os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    last = 0

    def fetch(store: Any, *_: Any, **__: Any) -> None:
        os.write(file, msgspec.json.encode(Kept(len(store), store.nbytes, last)) + b"\n")

    def insert(_: Any, __: Any, ___: Any, caches: Any, *____: Any, **_____: Any) -> None:
        nonlocal last
        last = sum(cache.nbytes for cache in caches)

    return together(
        before(LRUPromptCache, "fetch_nearest_cache", fetch),
        before(LRUPromptCache, "insert_cache", insert),
    )


def kept(folder: Path) -> list[Kept]:
    """What a server's store of prompts held whenever a request looked for its own."""
    return _lines(folder / _KEPT, Kept)


_DRAFTED = "drafted.jsonl"


class Drafted(msgspec.Struct, frozen=True):
    """An answer that is served by itself, so far.

    Attributes:
        number: of the answer.
        calls: of the draft model.
        verified: the lengths of the model's own calls, in tokens.
    """

    number: int
    calls: int
    verified: list[int]


def _drafted(hits: Hits) -> Patch:
    """Write what a draft model did for each answer that is served by itself, before each token."""
    from mlx_lm import server  # noqa: PLC0415 - only in a server's process

    from conformance.backend.metering import attach_meter  # noqa: PLC0415

    place: Path = hits.file  # type: ignore[attr-defined]
    file = os.open(place.with_name(_DRAFTED), os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    metered: dict[int, list[ForwardCall]] = {}

    def calls_of(model: Any) -> list[ForwardCall]:
        if model is not None and id(model) not in metered:
            metered[id(model)] = attach_meter(model)
        return metered.get(id(model), [])

    def generate(right: Right, **options: Any) -> Iterator[Any]:
        drafts, own = calls_of(options["draft_model"]), calls_of(options["model"])
        number, begun, at = next(numbers), len(drafts), len(own)
        for response in right(**options):
            line = Drafted(number, len(drafts) - begun, [call.length for call in own[at:]])
            os.write(file, msgspec.json.encode(line) + b"\n")
            yield response

    numbers = itertools.count()
    return wrap(server, "stream_generate", generate)


def drafted(folder: Path) -> list[Drafted]:
    """What a draft model did for the answers that a server has served by themselves."""
    return list({line.number: line for line in _lines(folder / _DRAFTED, Drafted)}.values())


def _lines(file: Path, kind: type[_Read]) -> list[_Read]:
    lines = file.read_bytes().splitlines() if file.exists() else []
    return [msgspec.json.decode(line, type=kind) for line in lines]


_WANTED, _COUNTS = "weigh", "weighed.json"
_LOOK_SECONDS, _MOST_SECONDS = 0.02, 30.0


@contextlib.contextmanager
def _weighed(hits: Hits) -> Iterator[None]:
    """Count what is alive in the server's process whenever a file asks for it."""
    from conformance.backend import memory  # noqa: PLC0415 - only in a server's process

    folder = hits.file.parent  # type: ignore[attr-defined]
    begun = contextlib.ExitStack()

    def look() -> None:
        while True:
            time.sleep(_LOOK_SECONDS)
            if (folder / _WANTED).exists():
                if first:
                    begun.enter_context(memory.only_new_objects())
                    begun.enter_context(memory.exact_buffers())
                    first.clear()
                counts = memory.left(recorded=False)
                (folder / _WANTED).unlink()
                place = folder / f"{_COUNTS}.new"
                place.write_bytes(msgspec.json.encode(counts))
                place.replace(folder / _COUNTS)

    first = [True]
    threading.Thread(target=look, daemon=True).start()
    yield


def weighed(folder: Path) -> dict[str, int]:
    """Counts of what is alive in the process of a server, by kind.

    Args:
        folder: the server's folder.

    Raises:
        TimeoutError: the process does not answer.
    """
    (folder / _WANTED).touch()
    end = time.monotonic() + _MOST_SECONDS
    while not (folder / _COUNTS).exists():
        if time.monotonic() > end:
            raise TimeoutError(f"the server counted nothing for {_MOST_SECONDS:.0f} s")
        time.sleep(_LOOK_SECONDS)
    counts = msgspec.json.decode((folder / _COUNTS).read_bytes(), type=dict[str, int])
    (folder / _COUNTS).unlink()
    return counts


class Steps:
    """The recorded steps of a server, from now on.

    Args:
        folder: the server's folder.
    """

    def __init__(self, folder: Path) -> None:
        self._file = folder / _NAME
        self._at = self._file.stat().st_size if self._file.exists() else 0

    def new(self, *, left: bool = False) -> Sequence[ServedStep]:
        """The steps since the previous call; ``left``: whether a client had left before them."""
        if not self._file.exists():
            return ()
        with self._file.open("rb") as file:
            file.seek(self._at)
            *lines, _ = file.read().split(b"\n")
        self._at += sum(len(line) + 1 for line in lines)
        found = (msgspec.json.decode(line, type=_Line) for line in lines)
        return [
            ServedStep(tuple(ForwardCall(*call) for call in line.calls), line.nbytes, left=left)
            for line in found
        ]
