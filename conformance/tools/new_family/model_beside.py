"""Finds the Python file of a model next to its config, without running it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from conformance.core.errors import AdoptionError

_CLASSES = {"Model", "ModelArgs"}

WHAT_TO_GIVE = (
    "give its Python file, with Model and ModelArgs as mlx-lm has them, as PATH, or name it in the "
    "config as 'model_file'"
)


def model_beside(path: Path, config: dict[str, Any]) -> Path | None:
    """The file next to the config that has the model's classes; ``None`` if there is none.

    The file is named after the model's type or the config, or is ``model.py``; next to a
    ``config.json`` any name is accepted.

    Raises:
        AdoptionError: there are several, and none is named after the model.
    """
    kind = str(config.get("model_type", ""))
    named = (f"{kind}.py", f"modeling_{kind}.py", f"{path.stem}.py", "model.py")
    for name in named:
        if _has_model(path.with_name(name)):
            return path.with_name(name)
    if path.name != "config.json":
        return None
    found = [file for file in sorted(path.parent.glob("*.py")) if _has_model(file)]
    if len(found) > 1:
        names = ", ".join(file.name for file in found)
        raise AdoptionError(
            f"{path}: several files beside it have a Model ({names}); name one in the config as "
            "'model_file'"
        )
    return found[0] if found else None


def _has_model(file: Path) -> bool:
    """Whether a module's text defines or imports both classes."""
    try:
        tree = ast.parse(file.read_bytes())
    except (OSError, SyntaxError, ValueError):
        return False
    return set(_names(tree)) >= _CLASSES


def _names(tree: ast.Module) -> Iterator[str]:
    """The names defined at the top level of the module's text."""
    for node in tree.body:
        if isinstance(node, ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.ImportFrom):
            yield from (alias.asname or alias.name for alias in node.names)
