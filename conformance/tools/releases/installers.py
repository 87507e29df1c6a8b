"""The commands that solve and install requirements: ``uv`` if available, else ``pip``."""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from conformance.core.errors import ReleaseError
from conformance.core.processes import run_to_end


def python_of(folder: Path) -> Path:
    """The interpreter of an environment."""
    return folder / "bin" / "python"


def install(folder: Path, wanted: Sequence[str]) -> None:
    """Make an environment in an empty folder, with these requirements.

    Raises:
        ReleaseError: they cannot be installed together; has the installer's whole message.
        OSError: the folder cannot be written.
    """
    python, uv = str(python_of(folder)), find_uv()
    if uv is None:
        commands = [
            [sys.executable, "-m", "venv", str(folder)],
            [python, "-m", "pip", "install", "--quiet", *_PIP, *wanted],
        ]
    else:
        commands = [
            [uv, "venv", "--quiet", "--allow-existing", "--python", sys.executable, str(folder)],
            [uv, "pip", "install", "--quiet", "--python", python, *wanted],
        ]
    for command in commands:
        _call(command)


def solve(wanted: Sequence[str], before: datetime) -> dict[str, str]:
    """The versions that these requirements resolve to, by distribution, as of that time.

    ``pip`` before 26 has no such bound; it resolves to the newest current versions.

    Raises:
        ReleaseError: there are none; has the resolver's whole message.
    """
    uv, bound = find_uv(), before.isoformat()
    if uv is not None:
        quiet = ["--quiet", "--no-header", "--no-annotate", "--python", sys.executable]
        with tempfile.NamedTemporaryFile("w", suffix=".in", prefix="conformance-") as file:
            file.write("\n".join(wanted))
            file.flush()
            text = _call([uv, "pip", "compile", *quiet, "--exclude-newer", bound, file.name])
        return _pinned(text)
    pip = [sys.executable, "-m", "pip"]
    since = ["--uploaded-prior-to", bound] if "uploaded-prior-to" in _help(pip) else []
    dry = ["install", "--quiet", "--dry-run", "--ignore-installed", "--report", "-", *_PIP]
    report = json.loads(_call([*pip, *dry, *since, *wanted]))
    found = [one["metadata"] for one in report["install"]]
    return {canonicalize_name(data["name"]): data["version"] for data in found}


_PIP = ("--disable-pip-version-check", "--no-input")


def find_uv() -> str | None:
    """The path of ``uv`` next to this interpreter or on the path."""
    beside = Path(sys.executable).parent / "uv"
    return str(beside) if beside.is_file() else shutil.which("uv")


def _help(pip: Sequence[str]) -> str:
    return _call([*pip, "install", "--help"])


def _call(command: Sequence[str]) -> str:
    """Run a command; return its standard output."""
    kept = {k: v for k, v in os.environ.items() if k != "VIRTUAL_ENV"}
    done = run_to_end(command, environment=kept)
    if not done.good:
        raise ReleaseError(_in_a_line(done.errors or done.output or f"{command[0]} {done.why}"))
    return done.output


def _pinned(text: str) -> dict[str, str]:
    """The lines ``name==version`` of a requirements file."""
    found: dict[str, str] = {}
    for line in text.splitlines():
        try:
            one = Requirement(line.partition(";")[0])
        except InvalidRequirement:  # an option, or an empty line
            continue
        exact = [s.version for s in one.specifier if s.operator == "=="]
        found |= {canonicalize_name(one.name): version for version in exact}
    return found


def _in_a_line(text: str) -> str:
    """An installer's whole message on one line, without the lines that ``uv`` draws."""
    return " ".join(word for word in text.split() if word.isascii())
