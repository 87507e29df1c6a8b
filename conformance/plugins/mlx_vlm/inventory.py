"""Which model modules the installed mlx-vlm has, and why some have no family file."""

from __future__ import annotations

from pathlib import Path

import mlx_vlm.models

from conformance.backend.model_modules import load_exclusions, modules_of
from conformance.core.library import Coverage

FAMILIES = Path(__file__).parent / "families"


def coverage() -> Coverage:
    """The modules of ``mlx_vlm.models``, and the reasons in ``families/_excluded.toml``."""
    return Coverage(modules_of(mlx_vlm.models), load_exclusions(FAMILIES / "_excluded.toml"))
