"""Facts that must be the same on all machines of a run: versions, and the code that judges."""

from __future__ import annotations

import functools
import platform
from collections.abc import Mapping
from pathlib import Path

import conformance
from conformance.checks.expectations.loading import OWN
from conformance.core.content_keys import folder_digest
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
    own = Path(conformance.__file__).parent
    code = folder_digest(own, OWN, kinds=_KINDS)[:_DIGITS]
    return found | {_SOURCE: code}


def difference(mine: Mapping[str, str], others: Mapping[str, str], where: str) -> str:
    """The first difference, as a sentence; empty if there is none."""
    for name in sorted({*mine, *others}):
        here, there = mine.get(name, "none"), others.get(name, "none")
        if here != there:
            return f"worker {where} has {name} {there}, this machine {here}: make them the same"
    return ""
