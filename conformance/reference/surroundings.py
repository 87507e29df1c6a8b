"""What all stored data depends on: installed packages, the machine, the settings.

An ``Environment`` is taken before a library is imported, and again before results are stored: what
was installed, edited or moved in between shows as a difference. Contents count, since recorded
versions may be wrong; a file is read again only if its size, times or inode differ.
"""

from __future__ import annotations

import functools
import glob
import importlib
import os
import platform
import shutil
import sys
import sysconfig
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec

import conformance
from conformance.core.content_keys import digest, file_digest
from conformance.core.family import Family
from conformance.core.kernel_caches import VARIABLES
from conformance.core.processes import run_to_end
from conformance.reference.installed_files import (
    Digests,
    Signature,
    package_folder,
    signature,
    walk,
)

LIBRARIES = ("mlx_lm", "mlx_vlm")
"""Packages whose modules count separately, for their users; they may be edited in place."""

_OWN = "own"
_FAMILIES = "families"  # a family's file counts with the family
_POWER = "power/"  # proves the checks: no result depends on it
# A file system's clock is at most one kernel tick behind the process's.
_TICK_SECONDS = 0.02


class Environment:
    """Everything that is installed and set, at the time when this was made.

    Attributes:
        began: that time, in seconds since the epoch.
    """

    def __init__(self) -> None:
        importlib.invalidate_caches()
        self.began = time.time()
        self._roots = dict(_roots())
        self._folders = tuple(f"{root}{os.sep}" for root in self._roots.values())
        self._files = {label: dict(walk(root)) for label, root in self._roots.items()}
        self._by_path = {path: s for files in self._files.values() for path, s in files.items()}
        self._sources: dict[str, dict[str, Signature]] = {}
        self._modules: dict[str, str] = {}

    @classmethod
    @functools.cache
    def first(cls) -> Environment:
        """The environment at the first call in this process."""
        return cls()

    @functools.cached_property
    def installed(self) -> str:
        """A hash of interpreter, machine, settings and all installed packages except this one.

        For ``LIBRARIES`` only files that are not modules count. Empty if the device has no name:
        then no stored data is valid.
        """
        device = device_facts()
        if device is None:
            return ""
        return digest(part.encode() for part in (device, *process_facts(), self._packages_digest))

    @property
    def whole(self) -> str:
        """A hash of this and of this package without its families; empty if ``installed`` is."""
        return self.installed and digest(x.encode() for x in (self.installed, self.own("")))

    @property
    def contents(self) -> str:
        """A hash of all files that count in ``whole``, independent of settings."""
        return digest(x.encode() for x in (self._packages_digest, self.own("")))

    @functools.cached_property
    def _packages_digest(self) -> str:
        labels = (label for label in self._files if label != _OWN)
        found = digest(line.encode() for label in labels for line in self._lines(label))
        Digests.here().save()
        return found

    @functools.cache  # noqa: B019 - there is one for each process
    def own(self, *folders: str, but: tuple[str, ...] = ()) -> str:
        """A hash of the contents of folders of this package, except families and ``power/``.

        Args:
            folders: with slashes, such as ``plugins/mlx_lm``; empty: all folders.
            but: names of folders that do not count.
        """
        begins = tuple(f"{_OWN} {folder}" for folder in folders)
        lines = (line for line in self._lines(_OWN) if line.startswith(begins))
        counted = (line for line in lines if not any(f"/{name}/" in line for name in but))
        return digest(line.encode() for line in counted)

    def modules(self, package: str) -> str:
        """A hash of all modules of a package, which is not imported."""
        if package not in self._modules:
            known = Digests.here()
            lines = (f"{p} {known.of(p, s)}".encode() for p, s in self._modules_of(package).items())
            self._modules[package] = digest(lines)
            known.save()
        return self._modules[package]

    def unchanged(self, path: Path, seen: Signature | None = None) -> bool:
        """Whether a file is unchanged since this was made.

        Args:
            path: a file, installed or not.
            seen: the signature at its first opening, for a file that is not installed.
        """
        now = signature(path)
        before = self._by_path.get(str(path), seen)
        if before is not None:
            return now == before
        return now is not None and max(now[1:3]) / 1e9 < self.began - _TICK_SECONDS

    def unchanged_modules(self, package: str) -> bool:
        """Whether all modules of a package are unchanged since this was made."""
        found = self._modules_of(package)
        return bool(found) and all(signature(path) == sign for path, sign in found.items())

    def _modules_of(self, package: str) -> dict[str, Signature]:
        if package not in self._sources:
            root = package_folder(package)
            files: Iterable[tuple[str, Signature]] = self._by_path.items()
            if root is not None and not self.covers(f"{root}{os.sep}"):
                files = walk(root)
            self._sources[package] = {
                path: sign
                for path, sign in files
                if root is not None and path.endswith(".py") and _is_below(path, root)
            }
        return self._sources[package]

    def covers(self, path: str) -> bool:
        """Whether a file is in one of the folders whose contents all count."""
        return path.startswith(self._folders)

    def _lines(self, label: str) -> Iterator[str]:
        """Name and hash of the files that count, in the order of their names."""
        start = len(str(self._roots[label])) + 1
        known = Digests.here()
        for path, sign in self._files[label].items():
            name = path[start:]
            if label == _OWN and (f"/{_FAMILIES}/" in name or name.startswith(_POWER)):
                continue
            if name.endswith(".py") and (label in LIBRARIES or name.split("/", 1)[0] in LIBRARIES):
                continue
            yield f"{label} {name} {known.of(path, sign)}"


def family_digest(family: Family) -> str:
    """A hash of a family's file and of its model file, if it has one."""
    parts = [msgspec.json.encode((family.name, family.facts, family.config))]
    if family.facts.model_file:
        parts.append(file_digest(Path(family.path).parent / family.facts.model_file).encode())
    return digest(parts)


def _roots() -> Iterator[tuple[str, Path]]:
    """The folders of installed files, each with a name that does not depend on its location."""
    yield _OWN, Path(str(conformance.__file__)).parent
    found = [Path(sysconfig.get_path(name)) for name in ("stdlib", "platstdlib")]
    found += [Path(p) for p in sys.path if p and any(Path(p).glob("*.dist-info"))]
    places = list(dict.fromkeys(path for path in found if path.is_dir()))
    yield from ((f"installed{index}", path) for index, path in enumerate(places))
    for package in (*LIBRARIES, "mlx"):
        folder = package_folder(package)
        if folder is not None and not any(folder.is_relative_to(place) for place in places):
            yield package, folder


def _is_below(path: str, root: Path) -> bool:
    return path.startswith(f"{root}{os.sep}")


# Variables that no result depends on. All others count, including unknown ones.
_IGNORED = frozenset(
    (
        "HOME", "PWD", "OLDPWD", "SHLVL", "_", "USER", "LOGNAME", "USERNAME", "MAIL", "HOSTNAME",
        "HOST", "SHELL", "PATH", "TEMP", "TMP", "TERM", "COLORTERM", "COLUMNS", "LINES",
        "LS_COLORS", "LSCOLORS", "NO_COLOR", "FORCE_COLOR", "PY_COLORS", "TTY_COMPATIBLE", "PS1",
        "PS2", "PROMPT_COMMAND", "EDITOR", "VISUAL", "PAGER", "LESS", "LESSOPEN", "LESSCLOSE",
        "DISPLAY", "WAYLAND_DISPLAY", "XAUTHORITY", "STY", "WINDOWID", "VIRTUAL_ENV",
        "VIRTUAL_ENV_PROMPT", "CI", "INVOCATION_ID", "JOURNAL_STREAM", "SECURITYSESSIONID",
        "HYPOTHESIS_STORAGE_DIRECTORY", "LC_TERMINAL", "LC_TERMINAL_VERSION",
    )
)  # fmt: skip
_IGNORED_BEGINNINGS = (
    "SSH_", "GITHUB_", "RUNNER_", "ACTIONS_", "GITLAB_", "CI_", "BUILDKITE", "CIRCLE", "JENKINS_",
    "TRAVIS", "TF_BUILD", "TMUX", "ITERM_", "TERM_", "VSCODE_", "XDG_", "DBUS_", "GPG_", "CLICOLOR",
    "__CF", "PYTEST_XDIST", "PYTEST_CURRENT", "CONFORMANCE_TESTS_",
)  # fmt: skip
# Compilers turn kernels into code; PATH matters only for where they are found.
_COMPILERS = ("g++", "c++", "clang++", "xcrun", "nvcc")


def process_facts() -> Iterator[str]:
    """The interpreter, how it was started, and what the environment sets."""
    yield sys.version
    yield f"{sys.flags} {sorted(sys._xoptions.items())} {sys.warnoptions}"
    for name, value in sorted(os.environ.items()):
        if name not in _IGNORED | VARIABLES and not name.startswith(_IGNORED_BEGINNINGS):
            yield f"{name}={value}"
    for name in _COMPILERS:
        place = shutil.which(name)
        real = Path(os.path.realpath(place)) if place else None
        yield f"{name} {real} {real and signature(real)}"
    for name in ("sitecustomize", "usercustomize"):
        file = getattr(sys.modules.get(name), "__file__", None)
        yield f"{name} {file and file_digest(Path(file))}"
    yield from _shadowing()


def _shadowing() -> Iterator[str]:
    """Modules in folders that precede the installed packages and have the name of one."""
    installed: set[str] = set()
    found = []
    for place in reversed(sys.path):
        folder = Path(place or ".")
        names = {entry.split(".", 1)[0] for entry in _listed(folder)} - {"__pycache__"}
        if place and any(folder.glob("*.dist-info")):
            installed |= names
        else:
            found += sorted(names & installed)
    yield f"shadowed {found}"


def _listed(folder: Path) -> list[str]:
    try:
        return os.listdir(folder)  # noqa: PTH208
    except OSError:
        return []


def device_facts() -> str | None:
    """System, processor and GPUs, which decide how numbers are rounded; ``None`` if unknown."""
    return None if (gpu := _gpu()) is None else f"{platform.platform()}\n{_processor()}\n{gpu}"


def _processor() -> str | None:
    if sys.platform == "darwin":
        return _printed("sysctl", "-n", "machdep.cpu.brand_string", "hw.model", "kern.osversion")
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor()
    wanted = ("model name", "flags", "Features", "CPU ")
    return "\n".join(sorted({line for line in lines if line.startswith(wanted)}))


def _gpu() -> str | None:
    """Driver and names of NVIDIA's GPUs; empty if mlx is not for them."""
    if not any(glob.glob(f"{place}/mlx_cuda*.dist-info") for place in sys.path if place):  # noqa: PTH207
        return ""
    return _printed("nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader")


def _printed(*command: str) -> str | None:
    done = run_to_end(command, seconds=20)
    return done.output.strip() or None if done.good else None
