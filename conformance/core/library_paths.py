"""Checkouts of mlx-lm and mlx-vlm that replace the installed packages."""

from __future__ import annotations

import importlib
import importlib.util
import itertools
import os
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from conformance.core.errors import ConformanceError

OPTION = "--library-path"
MODULES = ("mlx_lm", "mlx_vlm")
"""The packages that a checkout can contain."""

# Inherited by child processes; commands to rerun a case name these folders.
_CHOSEN = "CONFORMANCE_LIBRARY_PATH"


def in_words(words: Sequence[str]) -> tuple[str, ...]:
    """The folders that a command line names by the option."""
    found = [word.partition("=")[2] for word in words if word.startswith(f"{OPTION}=")]
    found += [after for word, after in itertools.pairwise(words) if word == OPTION]
    return tuple(found)


def use(folders: Iterable[str | Path]) -> None:
    """Import libraries from these folders, in this process and its child processes.

    Args:
        folders: each contains a package folder, or is one.

    Raises:
        ConformanceError: a folder has no package of a library, two have the same, or the library
            was already imported from elsewhere.
    """
    owners: dict[str, Path] = {}
    for folder in folders:
        root, modules = _root_of(Path(os.path.realpath(Path(folder).expanduser())))
        for module in modules:
            if owners.setdefault(module, root) != root:
                raise ConformanceError(
                    f"{OPTION}: {owners[module]} and {root} both have {module}; name one of them"
                )
    roots = list(dict.fromkeys(map(str, owners.values())))
    sys.path[:] = [*roots, *(path for path in sys.path if path not in roots)]
    importlib.invalidate_caches()
    for module, root in owners.items():
        _check(module, root)
    _extend("PYTHONPATH", roots)
    _extend(_CHOSEN, roots)


def import_used() -> None:
    """Import the libraries from the chosen folders now, so that a broken one is one sentence.

    Raises:
        ConformanceError: the import fails; the message names the exception.
    """
    for root in _listed(_CHOSEN):
        for module in _modules_in(Path(root)):
            try:
                importlib.import_module(module)
            except Exception as error:
                raise ConformanceError(
                    f"{OPTION}: {module} of {root} cannot be imported: "
                    f"{type(error).__name__}: {error}"
                ) from error


def chosen_options() -> tuple[str, ...]:
    """The option as it was given, for commands that run the same code again."""
    return tuple(word for root in _listed(_CHOSEN) for word in (OPTION, root))


def _root_of(folder: Path) -> tuple[Path, list[str]]:
    """The folder to import from, and the packages in it."""
    if not folder.is_dir():
        raise ConformanceError(f"{OPTION}: there is no folder {folder}")
    for root in (folder, folder.parent):
        modules = _modules_in(root)
        if modules and (root == folder or folder.name in modules):
            return root, modules
    raise ConformanceError(
        f"{OPTION}: {folder} has no package folder {' or '.join(MODULES)}; name a checkout of "
        "mlx-lm or mlx-vlm"
    )


def _modules_in(root: Path) -> list[str]:
    return [module for module in MODULES if (root / module / "__init__.py").is_file()]


def _check(module: str, root: Path) -> None:
    """Whether importing the module finds the one in that folder."""
    loaded = sys.modules.get(module)
    spec = loaded.__spec__ if loaded else importlib.util.find_spec(module)
    origin = Path(spec.origin if spec and spec.origin else "nowhere").resolve()
    if not origin.is_relative_to(root):
        raise ConformanceError(
            f"{OPTION}: {module} was already imported from {origin.parent}, not from {root}; "
            "use it in a new process"
        )


def _extend(variable: str, roots: Sequence[str]) -> None:
    before = [path for path in _listed(variable) if path not in roots]
    if roots:
        os.environ[variable] = os.pathsep.join([*roots, *before])


def _listed(variable: str) -> list[str]:
    return [path for path in os.environ.get(variable, "").split(os.pathsep) if path]
