"""Writes a package with an engine of your own, which works as it is written.

Its files are the templates next to this module.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import sys
import tempfile
from importlib import resources
from pathlib import Path

import jinja2

from conformance.core.errors import ConformanceError

__all__ = ["files_of", "write_package"]


# Writes the package, completely or not at all -----------------------------------------------------

_NAME = re.compile(r"[a-z][a-z0-9_]*")


def files_of(name: str) -> dict[str, str]:
    """The text of each file of the package, by file name."""
    folder = resources.files("conformance.tools.new_engine") / "templates"
    values = {
        "name": name,
        "project": name.replace("_", "-"),
        "engine": "".join(word.capitalize() for word in name.split("_")) or name,
    }
    environment = jinja2.Environment(
        undefined=jinja2.StrictUndefined,
        keep_trailing_newline=True,
        autoescape=False,
    )
    targets = {
        "pyproject.toml.j2": "pyproject.toml",
        "engine.py.j2": f"{name}.py",
        "test_engine.py.j2": f"test_{name}.py",
    }
    return {
        target: environment.from_string((folder / source).read_text("utf-8")).render(**values)
        for source, target in targets.items()
    }


def write_package(name: str, target: Path) -> Path:
    """Write the package into the new folder ``target`` and return its path.

    Raises:
        ConformanceError: the name is not a module name or is taken, or ``target`` can't be written.
    """
    if not _NAME.fullmatch(name):
        raise ConformanceError(
            f"{name!r} can't be the name of a module: use lower-case letters, digits and _"
        )
    if name in sys.stdlib_module_names or importlib.util.find_spec(name) is not None:
        raise ConformanceError(f"there is a module {name!r} already; name the engine otherwise")
    if target.exists():
        raise ConformanceError(f"{target}: exists already; name another folder with --out")
    try:
        made = Path(tempfile.mkdtemp(prefix=".new-engine-", dir=target.absolute().parent))
        try:
            for file, text in files_of(name).items():
                (made / file).write_text(text, encoding="utf-8")
            made.chmod(0o755)
            os.rename(made, target)  # noqa: PTH104 - a folder that is there is not replaced
        finally:
            shutil.rmtree(made, ignore_errors=True)
    except OSError as error:
        raise ConformanceError(f"{target}: cannot write there: {error.strerror}") from error
    return target
