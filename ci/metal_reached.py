"""Notes which Metal kernels a run calls: ``conformance run --plugin metal_reached``, from here.

The variable METAL_REACHED names a file. It gets a line for the first call of each kernel in each
process: the file and line that made it, as docs/gpu.md lists them.
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
    """None: a plugin has a hook."""
    return []


def made_at(frame: Any) -> str:
    """The file, from its package on, and the line; empty for code of no library."""
    parts = Path(frame.f_code.co_filename).parts
    begin = next((i for i, part in enumerate(parts) if part in _PACKAGES), None)
    return "" if begin is None else f"{'/'.join(parts[begin:])}:{frame.f_lineno}"


def noting(make: Callable[..., Any], path: Path) -> Callable[..., Any]:
    """``make``, whose kernels are noted in a file when they are called first."""
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
    # Before the libraries are imported: some make their kernels then.
    mx.fast.metal_kernel = noting(mx.fast.metal_kernel, Path(target))
