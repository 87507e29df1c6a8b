"""The key of a stored oracle: a hash of all that a tiny family's single streams depend on."""

from __future__ import annotations

import functools
import hashlib
import importlib.util
import inspect
import os
import platform
from pathlib import Path

import msgspec

from conformance.core import kernel_caches
from conformance.core.family import Family
from conformance.core.library import Library

# Of this project all that makes a model or decodes one request; requests are keys of their own.
_OWN = tuple(f"conformance.{name}" for name in ("core", "backend", "reference", "plugins"))
_BINARY_PACKAGE = "mlx"


def oracle_key(library: Library, family: Family, dtype: str, seed: int) -> str | None:
    """The key; ``None`` for real checkpoints, and for a library that names no package.

    A single stream that is made in each run guards against what is not in it.
    """
    if family.checkpoint is not None or not library.package:
        return None
    parts = {
        "library": [
            library.name,
            type(library).__qualname__,
            _text(inspect.getfile(type(library))),
        ],
        "sources": [_sources(package) for package in (library.package, *_OWN)],
        "binaries": _binaries(_BINARY_PACKAGE),
        "versions": dict(library.versions()),
        "machine": [library.device(), platform.platform(), *_settings()],
        "family": [family.name, msgspec.to_builtins(family.facts), family.config, *_code(family)],
        "load": [dtype, seed],
    }
    return hashlib.sha256(msgspec.json.encode(parts, order="sorted")).hexdigest()


@functools.cache
def _sources(package: str) -> str:
    """A hash of all Python files of a package, with their names."""
    found = hashlib.sha256()
    for folder in _folders(package):
        for path in sorted(folder.rglob("*.py")):
            found.update(f"{path.relative_to(folder)}\n".encode())
            found.update(hashlib.sha256(path.read_bytes()).digest())
    return found.hexdigest()


@functools.cache
def _binaries(package: str) -> list[list[str | int]]:
    """Name, size and time of each compiled library; to read them all would take longer."""
    return [
        [path.name, path.stat().st_size, path.stat().st_mtime_ns]
        for folder in _folders(package)
        for path in sorted(folder.rglob("*"))
        if path.suffix in (".so", ".dylib", ".metallib", ".pyd")
    ]


def _folders(package: str) -> list[Path]:
    spec = importlib.util.find_spec(package)
    return [Path(place) for place in (spec and spec.submodule_search_locations) or ()]


def _settings() -> list[str]:
    """The variables of the environment that mlx reads, but for the place of its kernels."""
    read = {name for name in os.environ if name.startswith("MLX_")} - kernel_caches.VARIABLES
    return sorted(f"{name}={os.environ[name]}" for name in read)


def _code(family: Family) -> list[str]:
    """The text of a model file beside the family's own."""
    file = family.facts.model_file
    return [_text(Path(family.path).parent / file)] if file else []


@functools.cache
def _text(path: str | Path) -> str:
    return Path(path).read_text(encoding="utf-8")
