"""The registry for a command, which reports plugins that are left out."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from conformance.app.cli.printing import say
from conformance.core.unavailable import sentences
from conformance.run.registry import Registry, build_registry


def registry_of(
    extra: Iterable[object] = (),
    *,
    family_files: Iterable[Path] = (),
    engines: Iterable[str] = (),
) -> Registry:
    """``build_registry``, and sentences about the parts of installed plugins that are left out."""
    found = build_registry(extra, family_files=family_files, engines=engines)
    for line in sentences(found.unavailable):
        say(line, err=True)
    return found
