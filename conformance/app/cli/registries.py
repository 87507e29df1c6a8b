"""The registry for a command, which reports plugins that are left out."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from conformance.app.cli.printing import say
from conformance.core.unavailable import sentences
from conformance.run.registry import Registry, build_registry

_NO_FAULTS = "conformance/power is not installed, so no fault is known here"


def registry_of(
    extra: Iterable[object] = (),
    *,
    family_files: Iterable[Path] = (),
    engines: Iterable[str] = (),
    faults: bool = False,
) -> Registry:
    """``build_registry``, and sentences about the parts of installed plugins that are left out.

    Args:
        faults: with the faults of this project, if they are installed.
    """
    found = build_registry(extra, family_files=family_files, engines=engines)
    if faults:
        found = _with_faults(found)
    for line in sentences(found.unavailable):
        say(line, err=True)
    return found


def _with_faults(found: Registry) -> Registry:
    try:
        from conformance.power.faults import with_faults  # noqa: PLC0415 - it may be missing
    except ModuleNotFoundError as error:
        if not f"{error.name}.".startswith("conformance.power."):
            raise
        say(_NO_FAULTS, err=True)
        return found
    return with_faults(found)
