"""One isolated environment for each release, kept under a name made from its requirements.

It does not contain this project, which is imported from a separate folder (``package``).
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from conformance.core.content_keys import text_digest
from conformance.core.errors import ReleaseError
from conformance.core.processes import Done, run_to_end
from conformance.tools.releases import package
from conformance.tools.releases.installers import install, python_of
from conformance.tools.releases.pins import LIBRARIES, Release, requirement
from conformance.tools.releases.solving import choices

MAKING = "making-"
"""Prefix of the name of a folder that is not complete yet."""


_LOOK_SECONDS = 0.5


@dataclass(frozen=True)
class Environment:
    """The folders of an installed release and of this project for it."""

    python: Path
    package: Path

    def run(
        self,
        arguments: Sequence[str],
        seconds: float | None,
        go_on: Callable[[], bool] = lambda: True,
    ) -> Done:
        """Run the environment's interpreter with these arguments, as ``run_to_end`` does."""
        own = {"PYTHONPATH": str(self.package), "PYTHONNOUSERSITE": "1"}
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("PYTEST_", "VIRTUAL_ENV"))}
        return run_to_end(
            [str(self.python), *arguments],
            seconds=seconds,
            environment=kept | own,
            folder=self.package,
            apart=False,
            go_on=go_on,
            every=_LOOK_SECONDS,
        )


def prepare(
    release: Release, given: Mapping[str, str], cache: Path, *, server: bool = False
) -> Environment:
    """The environment of a release, from ``cache`` or newly made.

    Args:
        release: of the library whose plugin is used there.
        given: what the user wants installed with it, by distribution.
        cache: a folder for environments and packages.
        server: include the engine of the library's server.

    Raises:
        ReleaseError: it cannot be installed; has the installer's message.
    """
    refused = []
    try:
        for origin, pins in choices(release, given, cache):
            try:
                folder = _made(release, pins, cache)
            except ReleaseError as error:
                pinned = ", ".join(f"{name} {version}" for name, version in pins.items())
                refused.append(f"with {pinned} of {origin}: {error}")
                continue
            named = {lib.replace("-", "_") for lib in LIBRARIES if lib in pins}
            servers = {f"{release.engine}_server"} if server else set()
            plugins = {"reference_engine", *named, *servers}
            return Environment(python_of(folder), package.unpack(cache, plugins))
    except ReleaseError as error:
        refused.append(f"other versions were not found: {error}")
    except OSError as error:
        raise ReleaseError(f"cannot be installed: {error}") from error
    raise ReleaseError(
        f"cannot be installed {'; '.join(refused)} (choose others by "
        f"--pin {release.library}=={release.version}:NAME==VERSION)"
    )


def _made(release: Release, pins: Mapping[str, str], cache: Path) -> Path:
    """The environment's folder, made atomically if it does not exist."""
    wanted = [requirement(name, version) for name, version in pins.items()]
    wanted += package.needs({*LIBRARIES, "mlx", *pins})
    interpreter = f"{sys.executable} {sys.version}"
    key = text_digest(interpreter, *sorted(wanted))[:12]
    folder = cache / f"{release.library}-{release.version}-{key}"
    if folder.is_dir():
        return folder
    cache.mkdir(parents=True, exist_ok=True)
    with _alone(cache / f"{MAKING}{folder.name}.lock"):
        if not folder.is_dir():
            making = Path(tempfile.mkdtemp(prefix=MAKING, dir=cache))
            try:
                install(making, wanted)
                package.put(making, folder)
            finally:
                shutil.rmtree(making, ignore_errors=True)
    return folder


@contextlib.contextmanager
def _alone(lock: Path) -> Iterator[None]:
    """Let only one process of a machine make an environment; the others wait for it."""
    with lock.open("w") as file:
        with contextlib.suppress(OSError):  # some network file systems do not support locks
            fcntl.flock(file, fcntl.LOCK_EX)
        try:
            yield
        finally:
            lock.unlink(missing_ok=True)


_OURS = (*(f"{library}-" for library in LIBRARIES), "package-", "solved-", MAKING)


@dataclass(frozen=True)
class Kept:
    """An environment, a copy of this project, or a stored result of the resolver.

    Attributes:
        size: bytes on disk; files that ``uv`` shares between environments count in each.
    """

    path: Path
    size: int


def kept(cache: Path) -> tuple[Kept, ...]:
    """The entries that this command has put into a folder, by name; other files are ignored.

    Raises:
        ReleaseError: the folder cannot be read.
    """
    try:
        paths = sorted(cache.iterdir()) if cache.is_dir() else []
        return tuple(Kept(p, _size(p)) for p in paths if p.name.startswith(_OURS))
    except OSError as error:
        raise ReleaseError(f"{cache}: cannot be read: {error.strerror}") from error


def remove(entries: tuple[Kept, ...]) -> None:
    """Delete the entries.

    Raises:
        ReleaseError: an entry cannot be deleted.
    """
    for entry in entries:
        try:
            if entry.path.is_dir() and not entry.path.is_symlink():
                shutil.rmtree(entry.path)
            else:
                entry.path.unlink(missing_ok=True)
        except OSError as error:
            raise ReleaseError(f"{entry.path}: cannot be removed: {error.strerror}") from error


def _size(path: Path) -> int:
    """The size of all files below a path, or of a single file; links are not followed."""
    files = path.rglob("*") if path.is_dir() else [path]
    return sum(file.lstat().st_blocks * 512 for file in files)
