"""The model modules of an installed library, and the reasons why some have no family."""

from __future__ import annotations

import pkgutil
from pathlib import Path
from types import ModuleType

from conformance.core.errors import FamilyError
from conformance.core.user_files import read_toml


def modules_of(package: ModuleType) -> tuple[str, ...]:
    """Its modules and packages by name, including names with dashes; none is imported."""
    return tuple(sorted(found.name for found in pkgutil.iter_modules(package.__path__)))


def load_exclusions(path: Path) -> dict[str, str]:
    """The reason for each excluded module.

    Raises:
        FamilyError: the file is missing or malformed, or an entry gives no reason.
    """
    reasons = read_toml(path, FamilyError)
    for module, reason in reasons.items():
        if not isinstance(reason, str) or not reason.strip():
            raise FamilyError(f"{path}: {module!r} is excluded without a reason")
    return reasons
