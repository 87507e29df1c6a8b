"""The device that models run on."""

from __future__ import annotations

import os
import platform

import mlx.core as mx

from conformance.core.errors import ConformanceError
from conformance.core.library_source import versions_of


def device_name() -> str:
    """The device and its chip, for example ``cpu (AMD EPYC)`` or ``gpu (Apple M4, TF32)``."""
    device = mx.default_device()
    kind = "cpu" if on_cpu() else "gpu"
    info = mx.device_info(device) if hasattr(mx, "device_info") else {}
    chip = info.get("device_name") or platform.machine()
    reduced = kind == "gpu" and os.environ.get("MLX_ENABLE_TF32") != "0"
    return f"{kind} ({chip}{', TF32' if reduced else ''})"


def on_cpu() -> bool:
    """Whether models run on the CPU."""
    return bool(mx.default_device().type == mx.DeviceType.cpu)


def use_cpu() -> None:
    """Compute on the CPU, even on a machine with a GPU.

    For a process that has not imported mlx-lm or mlx-vlm: both choose their stream at import.
    """
    mx.set_default_device(mx.Device(mx.DeviceType.cpu))


def check_gpu() -> None:
    """Check that models run on a GPU.

    Raises:
        ConformanceError: they run on the CPU.
    """
    if on_cpu():
        raise ConformanceError(
            "--devices: mlx computes on the CPU here: its CUDA library is installed, and the one "
            "for CPUs was written over it; docs/ci.md says how both are installed"
        )


def package_versions(*packages: str) -> dict[str, str]:
    """Versions of Python and of the given packages, if installed.

    A package that is a checkout has a second entry, ``mlx-lm source``: its path and commit.
    """
    found = {"python": platform.python_version()}
    for package in packages:
        found |= versions_of(package)
    return found


def device_error() -> str:
    """The error of a computation that should not fail; empty while the device serves this process.

    It waits for all work submitted before.
    """
    try:
        mx.synchronize()
        mx.eval(mx.zeros(1) + 1)
    except RuntimeError as error:
        return str(error)
    return ""
