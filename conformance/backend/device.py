"""Which device models run on."""

from __future__ import annotations

import os
import platform

import mlx.core as mx

from conformance.core.library_source import versions_of


def device_name() -> str:
    """The device and its chip, for example ``cpu (AMD EPYC)`` or ``gpu (Apple M4, TF32)``."""
    device = mx.default_device()
    kind = "gpu" if device.type == mx.DeviceType.gpu else "cpu"
    info = mx.device_info(device) if hasattr(mx, "device_info") else {}
    chip = info.get("device_name") or platform.machine()
    reduced = kind == "gpu" and os.environ.get("MLX_ENABLE_TF32") != "0"
    return f"{kind} ({chip}{', TF32' if reduced else ''})"


def package_versions(*packages: str) -> dict[str, str]:
    """Versions of Python and of those of the packages that are installed.

    A package that is a checkout has a second entry, ``mlx-lm source``: its path and commit.
    """
    found = {"python": platform.python_version()}
    for package in packages:
        found |= versions_of(package)
    return found
