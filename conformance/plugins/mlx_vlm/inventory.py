"""Which model modules the installed mlx-vlm has, and which of them no family covers.

Nothing is skipped in silence: a module is covered by a family, or excluded with a reason.
"""

from __future__ import annotations

import pkgutil
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import mlx_vlm.models

from conformance.errors import FamilyError
from conformance.family import Family

EXCLUSIONS = Path(__file__).parent / "families" / "_excluded.toml"


@dataclass(frozen=True)
class Coverage:
    """How families, exclusions and installed modules fit together.

    Attributes:
        uncovered: installed modules without a family and without a reason.
        not_installed: names of families whose module this release does not have; they are not run.
        stale: excluded modules that are not installed, or that a family covers after all.
    """

    uncovered: tuple[str, ...]
    not_installed: tuple[str, ...]
    stale: tuple[str, ...]


def installed_modules() -> tuple[str, ...]:
    """The packages and modules of ``mlx_vlm.models``, by name, none of them imported."""
    return tuple(sorted(found.name for found in pkgutil.iter_modules(mlx_vlm.models.__path__)))


def load_exclusions(path: Path = EXCLUSIONS) -> dict[str, str]:
    """The reason for each excluded module.

    Raises:
        FamilyError: the file is missing or malformed, or an entry gives no reason.
    """
    try:
        reasons = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, tomllib.TOMLDecodeError) as error:
        raise FamilyError(f"{path}: cannot read the exclusions: {error}") from error
    for module, reason in reasons.items():
        if not isinstance(reason, str) or not reason.strip():
            raise FamilyError(f"{path}: {module!r} is excluded without a reason")
    return reasons


def coverage(
    families: Iterable[Family],
    exclusions: Mapping[str, str],
    *,
    modules: tuple[str, ...] | None = None,
) -> Coverage:
    """Compare families and exclusions with the modules that are there.

    Args:
        families: the families of this library.
        exclusions: the reason for each excluded module.
        modules: the modules of the library; those installed if absent.
    """
    there = set(installed_modules() if modules is None else modules)
    needing = {family.name: family.module for family in families}
    covered = set(needing.values())
    return Coverage(
        uncovered=tuple(sorted(there - covered - set(exclusions))),
        not_installed=tuple(
            sorted(name for name, module in needing.items() if module not in there)
        ),
        stale=tuple(sorted(set(exclusions) - (there - covered))),
    )
