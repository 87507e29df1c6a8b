"""The registry of a command, which says what is left out of it."""

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
    """As ``build_registry``; sentences about what is left out of installed plugins."""
    found = build_registry(extra, family_files=family_files, engines=engines)
    for line in sentences(found.unavailable):
        say(line, err=True)
    return found
