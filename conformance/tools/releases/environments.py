"""One isolated environment for each release, made by ``uv`` if it is there, else by ``pip``.

An environment is kept under a name made from its requirements. It does not contain this project,
which comes from a folder of its own (``package``).
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from conformance.core.errors import ReleaseError
from conformance.tools.releases import package
from conformance.tools.releases.pins import LIBRARIES, Release, requirement

# Length of an installer's message in a report, in characters.
_LONGEST = 300


@dataclass(frozen=True)
class Environment:
    """Where a release is installed, and this project for it."""

    python: Path
    package: Path

    def call(self, arguments: Sequence[str]) -> subprocess.CompletedProcess[str]:
        """Run its interpreter with these arguments, its output as text."""
        own = {"PYTHONPATH": str(self.package), "PYTHONNOUSERSITE": "1"}
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("PYTEST_", "VIRTUAL_ENV"))}
        return subprocess.run(
            [str(self.python), *arguments],
            env=kept | own,
            cwd=self.package,
            capture_output=True,
            text=True,
            check=False,
        )


def prepare(release: Release, pins: Mapping[str, str], cache: Path) -> Environment:
    """The environment of a release, from ``cache`` or made now.

    Args:
        release: of the library whose plugin is used there.
        pins: what to install, by distribution.
        cache: a folder for environments and packages.

    Raises:
        ReleaseError: it cannot be installed; has the installer's message.
    """
    foreign = {*LIBRARIES, "mlx", *pins}
    wanted = [requirement(name, version) for name, version in pins.items()]
    wanted += package.needs(foreign)
    interpreter = f"{sys.executable} {sys.version}"
    key = hashlib.sha256("\n".join([interpreter, *sorted(wanted)]).encode()).hexdigest()[:12]
    folder = cache / f"{release.library}-{release.version}-{key}"
    if not folder.is_dir():
        _make(folder, wanted)
    plugins = {"reference_engine", *(lib.replace("-", "_") for lib in LIBRARIES if lib in pins)}
    try:
        return Environment(_python(folder), package.unpack(cache, plugins))
    except OSError as error:
        raise ReleaseError(f"this project cannot be copied to {cache}: {error}") from error


def _make(folder: Path, wanted: Sequence[str]) -> None:
    """Install into a temporary folder, then rename it to ``folder``: whole or not at all."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    making = Path(tempfile.mkdtemp(prefix="making-", dir=folder.parent))
    try:
        for command in _commands(making, wanted):
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode:
                raise ReleaseError(f"cannot be installed: {_reason(done.stderr or done.stdout)}")
        if not folder.is_dir():  # another run may have made it meanwhile
            making.rename(folder)
    except OSError as error:
        raise ReleaseError(f"cannot be installed: {error}") from error
    finally:
        shutil.rmtree(making, ignore_errors=True)


def _commands(folder: Path, wanted: Sequence[str]) -> list[list[str]]:
    python, uv = str(_python(folder)), _uv()
    if uv is None:
        return [
            [sys.executable, "-m", "venv", str(folder)],
            [python, "-m", "pip", "install", "--quiet", *wanted],
        ]
    return [
        [uv, "venv", "--quiet", "--allow-existing", "--python", sys.executable, str(folder)],
        [uv, "pip", "install", "--quiet", "--python", python, *wanted],
    ]


def _uv() -> str | None:
    beside = Path(sys.executable).parent / "uv"
    return str(beside) if beside.is_file() else shutil.which("uv")


def _python(folder: Path) -> Path:
    return folder / "bin" / "python"


def _reason(text: str) -> str:
    """An installer's message, on one line."""
    line = " ".join(text.split())
    return line if len(line) <= _LONGEST else line[:_LONGEST] + " ..."
