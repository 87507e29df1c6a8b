"""Facts that must be the same on all machines of a run: versions, and the code that judges."""

from __future__ import annotations

import functools
import hashlib
import platform
from collections.abc import Iterator, Mapping
from pathlib import Path

import conformance
from conformance.checks.expectations.loading import OWN
from conformance.core.library_source import versions_of

PACKAGES = ("mlx", "mlx-lm", "mlx-vlm", "transformers", "numpy", "pytest")
_SOURCE = "source of mlx-conformance"
_KINDS = {".py", ".toml", ".json", ".jsonl"}
_DIGITS = 12


@functools.cache
def facts() -> dict[str, str]:
    """The facts of this machine; no package that affects numbers is imported."""
    found = {"Python": ".".join(platform.python_version_tuple()[:2])}
    for package in PACKAGES:
        found |= versions_of(package)
    return found | {_SOURCE: digest(Path(conformance.__file__).parent, OWN)}


def digest(*folders: Path) -> str:
    """A digest of the code and data in these folders."""
    whole = hashlib.sha256()
    for part in (part for folder in folders for part in _parts(folder)):
        whole.update(part)
    return whole.hexdigest()[:_DIGITS]


def _parts(folder: Path) -> Iterator[bytes]:
    for path in sorted(folder.rglob("*")):
        if path.suffix in _KINDS and path.is_file():
            yield path.relative_to(folder).as_posix().encode()
            yield path.read_bytes()


def difference(mine: Mapping[str, str], others: Mapping[str, str], where: str) -> str:
    """The first difference, as a sentence; empty if there is none."""
    for name in sorted({*mine, *others}):
        here, there = mine.get(name, "none"), others.get(name, "none")
        if here != there:
            return f"worker {where} has {name} {there}, this machine {here}: make them the same"
    return ""
