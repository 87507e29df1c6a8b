"""Notes which Metal kernels a run calls: ``conformance run --plugin metal_reached``, from here.

The variable METAL_REACHED names a file. For the first call of each kernel in each process, it gets
a line with the file and line that made the kernel, as listed in docs/gpu.md.
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mlx.core as mx

from conformance.run.hookspecs import hookimpl

_PACKAGES = ("mlx_lm", "mlx_vlm")


@hookimpl
def conformance_engines() -> list[Any]:
    """No engines; a plugin needs at least one hook."""
    return []


def made_at(frame: Any) -> str:
    """The file, from its package on, and the line; empty for code outside the libraries."""
    parts = Path(frame.f_code.co_filename).parts
    begin = next((i for i, part in enumerate(parts) if part in _PACKAGES), None)
    return "" if begin is None else f"{'/'.join(parts[begin:])}:{frame.f_lineno}"


def noting(make: Callable[..., Any], path: Path) -> Callable[..., Any]:
    """``make``, with each kernel noted in a file at its first call."""
    noted: set[str] = set()

    @functools.wraps(make)
    def metal_kernel(*args: Any, **more: Any) -> Any:
        kernel, place = make(*args, **more), made_at(sys._getframe(1))

        def call(*args: Any, **more: Any) -> Any:
            if place and place not in noted:
                noted.add(place)
                with path.open("a", encoding="utf-8") as file:
                    file.write(f"{place}\n")
            return kernel(*args, **more)

        return call

    return metal_kernel


if target := os.environ.get("METAL_REACHED"):
    # This precedes the import of the libraries, since some make their kernels then.
    mx.fast.metal_kernel = noting(mx.fast.metal_kernel, Path(target))
