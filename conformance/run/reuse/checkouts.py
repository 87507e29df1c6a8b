"""Which modules of a library's git checkout differ from a commit."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from conformance.core.errors import ConformanceError
from conformance.core.processes import git
from conformance.reference.installed_files import package_folder


def changed_modules(library: str, ref: str) -> frozenset[str]:
    """The modules of an imported library whose files differ from ``ref``, new ones included.

    Args:
        library: its package, such as ``mlx_lm``.
        ref: a commit, branch or tag.

    Raises:
        ConformanceError: the library is not a git checkout, or git does not know ``ref``.
    """
    folder = package_folder(library)
    if folder is None:
        raise ConformanceError(f"--changed {ref}: {library} is not installed")
    known = git(folder, "rev-parse", "--verify", "--quiet", f"{ref}^{{commit}}")
    if known is None:
        inside = git(folder, "rev-parse", "--is-inside-work-tree")
        why = f"git knows no commit {ref!r} there" if inside else "it is no git checkout"
        raise ConformanceError(
            f"--changed {ref}: {library} is loaded from {folder}, and {why}; "
            "name a checkout, or leave the commit out to play what changed since the last run"
        )
    if not git(folder, "ls-files", "--", "__init__.py"):
        raise ConformanceError(
            f"--changed {ref}: {library} is loaded from {folder}, which is no part of the git "
            "checkout around it; name a checkout of the library"
        )
    # For a renamed file both names count, and ignored files can be imported, too.
    names = ("--name-only", "--no-renames", "--no-ext-diff", "--relative")
    found = git(folder, "diff", *names, "-z", ref, "--", ".") or ""
    found += git(folder, "ls-files", "--others", "-z", "--", ".") or ""
    found += "\0".join(_not_looked_at(folder))
    paths = [Path(name) for name in found.split("\0") if name.endswith(".py")]
    return frozenset(_module(library, path) for path in paths)


def _not_looked_at(folder: Path) -> Iterator[str]:
    """Files that git assumes unchanged because of a flag: it does not look at them."""
    for line in (git(folder, "ls-files", "-v", "-z", "--", ".") or "").split("\0"):
        mark, _, name = line.partition(" ")
        if mark == "S" or mark.islower():
            yield name


def _module(library: str, path: Path) -> str:
    parts = path.with_suffix("").parts
    return ".".join((library, *(parts[:-1] if parts[-1] == "__init__" else parts)))
