"""The work of one worker process, and the reading of saved results."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from fnmatch import fnmatchcase
from pathlib import Path

from conformance.core.errors import ConformanceError, ResultError, Unsupported
from conformance.core.family import Family
from conformance.core.library import Library
from conformance.core.user_files import read_text
from conformance.power.transformers_check.check_results import Result, decode
from conformance.power.transformers_check.known_differences import Known, load_known


def check_installed() -> None:
    """Check that the optional packages are installed, without importing them.

    Raises:
        Unsupported: a package is missing; the message says how to install it.
    """
    for package in ("torch", "transformers"):
        if importlib.util.find_spec(package) is None:
            raise Unsupported(
                f"golden verify needs the package {package}: install mlx-conformance[transformers]"
            )


def verify_one(pair: tuple[Library, Family]) -> Result:
    """See ``verify.verify``; imports torch only in the process that needs it."""
    from conformance.power.transformers_check.verify import verify  # noqa: PLC0415 - an optional extra

    library, family = pair
    return verify(family, library, load_known().get(family.name, Known()))


def load_results(path: Path, patterns: Sequence[str]) -> list[Result]:
    """The results of a file, for families that match the globs.

    Raises:
        ResultError: the file is malformed; the message names the line.
        ConformanceError: a glob matches no result.
    """
    lines = read_text(path, ResultError).split("\n")
    places = ((f"{path}, line {n}", line) for n, line in enumerate(lines, 1) if line.strip())
    results = [decode(line, where=where) for where, line in places]
    for pattern in patterns:
        if not any(fnmatchcase(result.family, pattern) for result in results):
            raise ConformanceError(f"{path}: no family matches {pattern!r}")
    return [r for r in results if not patterns or any(fnmatchcase(r.family, p) for p in patterns)]
