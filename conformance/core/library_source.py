"""Where an installed library's code is: a checkout has its own path and commit."""

from __future__ import annotations

import functools
import importlib.metadata
import importlib.util
import json
import re
from dataclasses import dataclass
from pathlib import Path

from packaging.version import InvalidVersion, Version

from conformance.core.content_keys import folder_digest
from conformance.core.library_paths import MODULES
from conformance.core.processes import git

_VERSION = re.compile(r"""^__version__\s*(?::\s*str\s*)?=\s*["']([^"']+)["']""", re.M)
_DIGITS = 8


@dataclass(frozen=True)
class Source:
    """A library that is not from a package index.

    Attributes:
        folder: contains the package folder; empty if the code was installed from a repository.
        version: the version in the code.
        text: path, commit and whether files were changed since, for readers and for comparisons.
    """

    folder: str
    version: str
    text: str


@functools.cache
def source_of(package: str) -> Source | None:
    """Where a library's code is; ``None`` if it was installed from a package index, or not at all.

    Args:
        package: its name as distributed, for example ``mlx-lm``.
    """
    module = package.replace("-", "_")
    try:
        spec = importlib.util.find_spec(module) if module in MODULES else None
    except (ImportError, ValueError):  # whoever imports it gets the error
        return None
    if spec is None or not spec.origin:
        return None
    origin = Path(spec.origin)
    installed = _installed(package, origin)
    if installed is not None:
        return _from_repository(installed)
    folder = origin.parent.parent.resolve()
    return Source(str(folder), _version(package, origin.parent), _described(folder, module))


def older(package: str, least: str) -> bool:
    """Whether a package is installed in a release below ``least``; false if it is not a release."""
    try:
        return Version(versions_of(package)[package]) < Version(least)
    except (KeyError, InvalidVersion):
        return False


def versions_of(package: str) -> dict[str, str]:
    """The version of an installed package; for a checkout also its path and commit.

    Path and commit have their own key, such as ``mlx-lm source``. Nothing is imported.
    """
    if source := source_of(package):
        return {package: source.version, f"{package} source": source.text}
    version = _released(package)
    return {package: version} if version else {}


@functools.cache
def _released(package: str) -> str:
    """The version in a package's metadata, which are parsed once; empty if it is not installed."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return ""


def source_folders() -> tuple[str, ...]:
    """The folders of the libraries that are checkouts, for another process's path."""
    found = [source_of(module.replace("_", "-")) for module in MODULES]
    return tuple(dict.fromkeys(source.folder for source in found if source and source.folder))


def _installed(package: str, origin: Path) -> importlib.metadata.Distribution | None:
    """The installed distribution that the file belongs to.

    An editable install has its files elsewhere; a checkout's own ``egg-info`` does not count.
    """
    for found in importlib.metadata.distributions(name=package):
        file = Path(str(found.locate_file(f"{origin.parent.name}/{origin.name}")))
        if found.read_text("WHEEL") is not None and file.resolve() == origin.resolve():
            return found
    return None


def _from_repository(installed: importlib.metadata.Distribution) -> Source | None:
    """What ``pip install git+URL`` has recorded."""
    found = json.loads(installed.read_text("direct_url.json") or "{}")
    commit = found.get("vcs_info", {}).get("commit_id")
    if not commit:
        return None
    return Source("", installed.version, f"{found['url']}@{commit[:_DIGITS]}")


def _version(package: str, folder: Path) -> str:
    """The version in the code; the metadata of an editable install may be outdated."""
    for name in ("_version.py", "version.py", "__init__.py"):
        if (folder / name).is_file():
            text = (folder / name).read_text(encoding="utf-8", errors="replace")
            if found := _VERSION.search(text):
                return found[1]
    return _released(package) or "0"


def _described(folder: Path, module: str) -> str:
    """``/path@commit``; if that does not identify the code, a digest of the code, too."""
    tracked = _git(folder, "ls-files", "--error-unmatch", f"{module}/__init__.py")
    commit = _git(folder, "rev-parse", f"--short={_DIGITS}", "HEAD") if tracked else ""
    if not commit:
        return f"{folder} (no commit, {_digest(folder / module)})"
    if _git(folder, "status", "--porcelain", "--", module, ":(exclude,glob)**/__pycache__/**"):
        return f"{folder}@{commit} (dirty, {_digest(folder / module)})"
    return f"{folder}@{commit}"


def _git(folder: Path, *words: str) -> str:
    """Output of git; empty if it is not installed, or the folder is not in a repository."""
    return (git(folder, *words) or "").strip()


def _digest(folder: Path) -> str:
    return folder_digest(folder, kinds={".py"})[:_DIGITS]
