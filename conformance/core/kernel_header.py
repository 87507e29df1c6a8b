"""Compiles, once, the header that all of mlx's CPU kernels begin with.

mlx writes the source of a fused kernel when it first needs it and calls g++. Nine tenths of a
compiler's time are the header, which is the same in all kernels. g++ takes a compiled header in
its place if one is next to the source; the code of the kernel is the same to the byte.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import shutil
import sys
import tempfile
from importlib import metadata
from pathlib import Path

from conformance.core.content_keys import folder_digest, text_digest
from conformance.core.processes import run_to_end

_HEADER = Path("mlx", "backend", "cpu", "compiled_preamble.h")
# Those of mlx; with others g++ ignores the compiled header.
_FLAGS = ("-std=c++17", "-O3", "-Wall", "-fPIC")
_SECONDS = 120.0


def compile_header() -> Path | None:
    """Compile the header next to the shared kernels; ``None`` if this machine has no use for it.

    Nothing depends on its success: g++ ignores a header that another compiler or other flags made,
    and mlx compiles without any.
    """
    compiler = shutil.which("g++")
    found = importlib.util.find_spec("mlx")
    if sys.platform != "linux" or compiler is None or found is None:
        return None
    folders = [Path(place) / "include" for place in found.submodule_search_locations or ()]
    include = next((folder for folder in folders if (folder / _HEADER).is_file()), None)
    if include is None:
        return None
    kernels = Path(tempfile.gettempdir(), "mlx", metadata.version("mlx"), "cpu")
    # g++ tries each file of a folder of this name.
    folder = kernels / _HEADER.with_name(f"{_HEADER.name}.gch")
    status = os.stat(compiler)  # noqa: PTH116 - follows links
    made_by = f"{compiler} {status.st_size} {status.st_mtime_ns}"
    place = folder / text_digest(made_by, folder_digest(include))
    if not place.exists():
        with contextlib.suppress(OSError):
            _compile(compiler, include, place)
    return place if place.exists() else None


def _compile(compiler: str, include: Path, place: Path) -> None:
    """Compile the header to this file, which appears whole; earlier ones are removed."""
    place.parent.mkdir(parents=True, exist_ok=True)
    part = place.parent.with_name(f".{os.getpid()}.part")
    source = str(include / _HEADER)
    command = (compiler, *_FLAGS, f"-I{include}", "-x", "c++-header", source, "-o", str(part))
    try:
        if run_to_end(command, seconds=_SECONDS).good:
            for other in place.parent.iterdir():
                other.unlink()
            part.replace(place)
    finally:
        part.unlink(missing_ok=True)
