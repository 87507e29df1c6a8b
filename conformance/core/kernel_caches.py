"""Folders of the kernels that mlx compiles: each worker has its own, and they are merged later.

mlx writes a kernel where other processes look for it, which then read half-written files: "There is
no kernel named ..." on CUDA, "Failed to load compiled function ..." on a CPU. mlx reads two
environment variables when it first compiles, so nothing here imports it.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from pathlib import Path

TEMPORARY, PTX = "TMPDIR", "MLX_PTX_CACHE_DIR"
VARIABLES = frozenset({TEMPORARY, PTX})
"""Variables that say where kernels are kept; they do not affect what kernels compute."""

_MLX = "mlx"  # in the folder for temporary files
# mlx looks for these files first: the others of a kernel must exist before them.
_LOOKED_FOR = frozenset({".ptx", ".so", ".dylib"})
_PART = ".part"


class OwnKernels:
    """The kernels of this process, in its own folder, which starts with the shared kernels.

    From now on mlx compiles there, in this process and its child processes. Python's own temporary
    files stay where they were.

    Args:
        folder: is made; the caller removes it.
    """

    def __init__(self, folder: Path) -> None:
        self._pairs = [(Path(tempfile.gettempdir()) / _MLX, folder / _MLX)]
        if given := os.environ.get(PTX):
            self._pairs.append((Path(given), folder / "ptx"))
            os.environ[PTX] = str(folder / "ptx")
        self._renewed = False
        folder.mkdir(parents=True, exist_ok=True)
        for shared, own in self._pairs:
            own.mkdir(exist_ok=True)
            _add(shared, own)
        os.environ[TEMPORARY] = str(folder)

    def renew(self) -> None:
        """Discard all kernels, as one is broken; new ones replace the shared kernels."""
        self._renewed = True
        for _, own in self._pairs:
            for path in own.rglob("*"):
                with contextlib.suppress(OSError):  # a folder, which stays
                    path.unlink()

    def join(self) -> None:
        """Add the kernels compiled here to the shared ones; call it while nothing compiles."""
        for shared, own in self._pairs:
            _add(own, shared, replace=self._renewed)

    def exchange(self) -> None:
        """Give what was compiled here, and take what others gave: nobody compiles it again.

        Call it when nothing is being compiled.
        """
        self.join()
        for shared, own in self._pairs:
            _add(shared, own)


def _add(source: Path, target: Path, *, replace: bool = False) -> None:
    """Link or copy the complete kernels that another folder lacks; each file appears whole.

    An existing kernel stays unless it is to be replaced, and an empty file is not a kernel. If
    nothing can be written, each process compiles for itself.
    """
    there = set() if replace else _names(target)
    found = [source / name for name in _names(source) - there]
    for path in sorted(found, key=lambda one: one.suffix in _LOOKED_FOR):
        with contextlib.suppress(OSError):  # of another process, which may replace it now
            if path.stat().st_size and _whole(path):
                place = target / path.relative_to(source)
                place.parent.mkdir(parents=True, exist_ok=True)
                _put(path, place)


def _names(folder: Path) -> set[str]:
    """Of all files below a folder; it is asked after each case, and there are thousands."""
    start = len(str(folder)) + 1
    return {
        f"{place}{os.sep}{name}"[start:] for place, _, names in os.walk(folder) for name in names
    }


def _whole(path: Path) -> bool:
    """Whether a file is complete: PTX, for example, needs the names of its kernels."""
    if path.suffix != ".ptx":
        return path.suffix != _PART
    names = path.with_suffix(".txt")
    return names.is_file() and names.stat().st_size > 0


def _put(path: Path, place: Path) -> None:
    """Put the file there, replacing an existing one."""
    part = place.with_name(f".{os.getpid()}{_PART}")
    part.unlink(missing_ok=True)
    try:
        os.link(path, part)
    except OSError:  # another file system
        shutil.copyfile(path, part)
    part.replace(place)
