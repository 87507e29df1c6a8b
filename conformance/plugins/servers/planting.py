"""Faults and mends of a server: they are put into its process before its ``main`` runs.

In this process, their context managers only register the patches for servers started inside them.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from conformance.core.faults.declaration import Fault, Hits, Injection, fault
from conformance.core.mends import Mend, mend

_HITS = "hits-{}"


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
