"""One isolated environment for each release, kept under a name made from its requirements.

It does not contain this project, which is imported from a separate folder (``unpack``).
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement

import conformance
from conformance.core.content_keys import folder_digest, text_digest
from conformance.core.errors import ReleaseError
from conformance.core.processes import Done, run_to_end
from conformance.run.hookspecs import PROJECT
from conformance.tools.releases.installers import install, python_of
from conformance.tools.releases.pins import LIBRARIES, Release, choices, requirement

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
            return Environment(python_of(folder), unpack(cache, plugins))
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
    wanted += needs({*LIBRARIES, "mlx", *pins})
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
                put(making, folder)
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


# This project is a folder on an environment's path and not installed there: so many versions of it
# can use one environment, as their requirements do not exclude older libraries.
_NAME = "mlx-conformance"
_UNWANTED = shutil.ignore_patterns("__pycache__", "*.pyc")


# Plugins whose faults and mends import modules that another release may lack.
_OF_RELEASE = {
    name: f"conformance.plugins.servers.{name.removesuffix('_server')}_of_release"
    for name in ("mlx_lm_server", "mlx_vlm_server")
}


def needs(without: Collection[str]) -> tuple[str, ...]:
    """The requirements of the installed project, except the distributions in ``without``."""
    given = [Requirement(text) for text in metadata.requires(_NAME) or ()]
    wanted = [r for r in given if r.name not in without and _applies(r)]
    return tuple(sorted(f"{r.name}{r.specifier}" for r in wanted))


def _applies(requirement: Requirement) -> bool:
    """Whether the requirement applies here without any extra."""
    return requirement.marker is None or requirement.marker.evaluate({"extra": ""})


def unpack(folder: Path, plugins: Collection[str]) -> Path:
    """A folder below ``folder`` that holds the running package and names these of its plugins.

    It is made once for each content of the package, atomically.
    """
    source = Path(conformance.__file__).parent
    key = text_digest(*sorted(plugins), folder_digest(source))[:16]
    target = folder / f"package-{key}"
    if target.is_dir():
        return target
    making = Path(tempfile.mkdtemp(prefix="making-", dir=folder))
    try:
        # All files, including those of linked folders: known defects and kept schedules.
        # Not `ignore_dangling_symlinks`: it considers relative links dangling unless this process
        # happens to be in their folder.
        shutil.copytree(source, making / conformance.__name__, ignore=_UNWANTED)
        _write_metadata(making / f"mlx_conformance-{conformance.__version__}.dist-info", plugins)
        put(making, target)
    finally:
        shutil.rmtree(making, ignore_errors=True)
    return target


def put(making: Path, target: Path) -> None:
    """Rename a folder to its final name, unless another run has made the same meanwhile.

    Raises:
        OSError: it cannot be renamed.
    """
    try:
        making.rename(target)
    except OSError:
        if not target.is_dir():
            raise


def _write_metadata(folder: Path, plugins: Collection[str]) -> None:
    """Write the metadata that an interpreter needs to find the project's plugins."""
    entries = [
        f"{entry.name} = {_OF_RELEASE.get(entry.name, entry.value)}\n"
        for entry in metadata.distribution(_NAME).entry_points
        if entry.group == PROJECT and entry.name in plugins
    ]
    folder.mkdir()
    (folder / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {_NAME}\nVersion: {conformance.__version__}\n",
        encoding="utf-8",
    )
    text = f"[{PROJECT}]\n" + "".join(entries)
    (folder / "entry_points.txt").write_text(text, encoding="utf-8")
