"""Paths of golden files: ``golden/<library>/<family>.json``."""

from __future__ import annotations

from pathlib import Path

from conformance.core.errors import GoldenError

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
