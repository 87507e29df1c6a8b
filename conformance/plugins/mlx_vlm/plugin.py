"""The hooks of the mlx-vlm plugin."""

from __future__ import annotations

from pathlib import Path

from conformance.core.engine import Engine
from conformance.core.family import Family, load_families
from conformance.core.faults import Fault
from conformance.core.library import Library
from conformance.plugins.mlx_vlm.batch_generate import MlxVlmBatchGenerate
from conformance.plugins.mlx_vlm.engine import MlxVlmEngine
from conformance.plugins.mlx_vlm.faults import FAULTS
from conformance.plugins.mlx_vlm.library import MlxVlm
from conformance.run.hookspecs import hookimpl


@hookimpl
def conformance_libraries() -> list[Library]:
    """mlx-vlm."""
    return [MlxVlm()]


@hookimpl
def conformance_families() -> list[Family]:
    """The family files of this folder."""
    return list(load_families(Path(__file__).parent / "families"))


@hookimpl
def conformance_engines() -> list[type[Engine]]:
    """``BatchGenerator``, fed as the server feeds it, and ``batch_generate``."""
    return [MlxVlmEngine, MlxVlmBatchGenerate]


@hookimpl
def conformance_faults() -> list[Fault]:
    """Historic defects. They import the library only when they are applied."""
    return list(FAULTS)
