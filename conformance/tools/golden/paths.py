"""Where golden files are: ``golden/<library>/<family>.json``; which families have none, and why."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from conformance.core.errors import GoldenError
from conformance.core.user_files import read_toml

FOLDER = "golden"
BESIDE = frozenset({"README.md", "without.toml"})
"""Files that may be in the folder next to the libraries' folders."""
SUFFIX = ".json"


def golden_path(root: Path, library: str, family: str) -> Path:
    """The file of a library's family below ``root``."""
    return root / library / f"{family}{SUFFIX}"


def golden_files(root: Path) -> dict[tuple[str, str], Path]:
    """All golden files below ``root``, by library and family."""
    return {
        (path.parent.name, path.name.removesuffix(SUFFIX)): path
        for path in sorted(root.glob(f"*/*{SUFFIX}"))
    }


def strangers(root: Path) -> tuple[Path, ...]:
    """Files below ``root`` whose place or name is not a golden's, partial files included.

    Each path is judged by itself, as goldens may be written meanwhile.
    """
    return tuple(
        path
        for path in sorted(root.rglob("*"))
        if path.is_file() and not _belongs(path.relative_to(root))
    )


def _belongs(path: Path) -> bool:
    if len(path.parts) == 1:
        return path.name in BESIDE
    return len(path.parts) == 2 and path.suffix == SUFFIX


def find_folder(given: Path | None, *, must_exist: bool = True) -> Path:
    """The folder of goldens: the given one, else the working directory's, else the project's.

    Raises:
        GoldenError: the folder does not exist, and ``must_exist``.
    """
    project = Path(__file__).parents[3] / FOLDER
    here = Path.cwd() / FOLDER
    found = given or (here if here.is_dir() or not project.is_dir() else project)
    if found.is_dir() or (not must_exist and not found.exists()):
        return found.absolute()
    raise GoldenError(
        f"{found}: no folder of goldens is there; `conformance golden update` makes one, "
        "--golden names another"
    )


NAME = "without.toml"


def load_without(root: Path) -> Mapping[tuple[str, str], str]:
    """The reason for each family, by library and name; empty if the file does not exist.

    Raises:
        GoldenError: the file is not valid; names the field.
    """
    path = root / NAME
    if not path.exists():
        return {}
    content = read_toml(path, GoldenError)
    found = {}
    for library, families in content.items():
        if not isinstance(families, dict):
            raise GoldenError(f"{path}: field {library!r} must be a table of families")
        for family, reason in families.items():
            if not isinstance(reason, str) or not reason:
                raise GoldenError(f"{path}: field '{library}.{family}' must give a reason")
            found[library, family] = reason
    return found
