"""Hashes of what a case hangs on beside modules: packages, machine, this package, its family."""

from __future__ import annotations

import functools
import hashlib
import importlib.util
import os
import platform
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import msgspec

import conformance
from conformance.core import kernel_caches
from conformance.core.family import Family
from conformance.run.reuse.dependencies import LIBRARIES

# What mlx, its kernels and the number of their threads go by.
_VARIABLES = ("MLX_", "OMP_", "CUDA_", "TRANSFORMERS_", "HF_")
# A file of a family is hashed with the family.
_FAMILIES = "families"
_DIGITS = 32


def digest(parts: Iterable[bytes]) -> str:
    """A hash of these parts, which differs if any begins elsewhere."""
    found = hashlib.sha256()
    for part in parts:
        found.update(len(part).to_bytes(8, "big") + part)
    return found.hexdigest()[:_DIGITS]


@functools.cache
def file_digest(path: Path) -> str:
    """A hash of a file's content; ``gone`` if it cannot be read. Read once in a process."""
    try:
        return digest([path.read_bytes()])
    except OSError:
        return "gone"


@functools.cache
def environment_digest() -> str:
    """A hash of the interpreter, the machine, installed packages, mlx's binaries, and this package.

    Nothing is imported for it. Of installed packages names and versions count, of the libraries
    also files that are no modules.
    """
    return digest(part.encode() for part in _environment())


def _environment() -> Iterator[str]:
    yield sys.version
    yield platform.platform()
    yield _processor()
    read = {k for k in os.environ if k.startswith(_VARIABLES)} - kernel_caches.VARIABLES
    yield from sorted(f"{name}={os.environ[name]}" for name in read)
    yield from sorted(_distributions())
    yield from _contents(_root("mlx.core"), lambda path: path.suffix in (".so", ".dylib"))
    for library in LIBRARIES:
        yield from _contents(_root(library), lambda path: path.suffix not in (".py", ".pyc"))
    own = Path(str(conformance.__file__)).parent
    yield from _contents(own, lambda path: path.suffix != ".pyc" and path.parent.name != _FAMILIES)


@functools.cache
def package_digest(package: str) -> str:
    """A hash of all modules of a package; the package is not imported."""
    contents = _contents(_root(package), lambda path: path.suffix == ".py")
    return digest(line.encode() for line in contents)


def _processor() -> str:
    """The kind of processor, which decides what is rounded how; with what it is able to."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor()
    wanted = ("model name", "flags", "Features")
    return "\n".join(sorted({line for line in lines if line.startswith(wanted)}))


def _distributions() -> Iterator[str]:
    """Name and version of each installed package: the names of their folders."""
    for folder in sys.path:
        path = Path(folder or ".")
        if path.is_dir():
            yield from (entry.name for entry in path.glob("*.dist-info"))


def _contents(root: Path | None, wanted: Callable[[Path], bool]) -> Iterator[str]:
    if root is None:
        return
    for folder, folders, names in os.walk(root, followlinks=True):
        folders[:] = sorted(name for name in folders if name != "__pycache__")
        for name in sorted(names):
            path = Path(folder, name)
            if wanted(path):
                yield f"{path.relative_to(root)} {file_digest(path)}"


def _root(module: str) -> Path | None:
    spec = importlib.util.find_spec(module.partition(".")[0])
    if spec is None or not spec.submodule_search_locations:
        return None
    return Path(next(iter(spec.submodule_search_locations)))


def family_digest(family: Family) -> str:
    """A hash of a family's file and of its model file, if it has one."""
    parts = [msgspec.json.encode((family.name, family.facts, family.config))]
    if family.facts.model_file:
        path = Path(family.path).parent / family.facts.model_file
        parts.append(file_digest(path).encode())
    return digest(parts)
