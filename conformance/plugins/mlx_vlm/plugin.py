"""The hooks of the mlx-vlm plugin. Each imports the library, which takes long, only when called."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from conformance.run.hookspecs import hookimpl

if TYPE_CHECKING:
    from conformance.core.engine import Engine
    from conformance.core.family import Family
    from conformance.core.library import Library
    from conformance.core.mends import Mend
    from conformance.core.unavailable import Unavailable

# ruff: noqa: PLC0415

FAMILIES = Path(__file__).parent / "families"


@hookimpl
def conformance_engine_names() -> list[str]:
    """The names of the engines: the library is only imported if one of them is selected."""
    return ["mlx_vlm", "mlx_vlm_batch_generate"]


@hookimpl
def conformance_libraries() -> list[Library]:
    """The library mlx-vlm."""
    from conformance.plugins.mlx_vlm.library import MlxVlm

    return [MlxVlm()]


@hookimpl
def conformance_families() -> list[Family]:
    """The family files of this folder."""
    from conformance.core.family import load_families

    return list(load_families(FAMILIES))


@hookimpl
def conformance_engines() -> list[type[Engine] | Unavailable]:
    """The engines of ``BatchGenerator``, fed like the server feeds it, and ``batch_generate``."""
    from conformance.core.unavailable import engines_of

    return engines_of(
        "conformance.plugins.mlx_vlm",
        {
            "mlx_vlm": "engine.MlxVlmEngine",
            "mlx_vlm_batch_generate": "batch_generate.MlxVlmBatchGenerate",
        },
    )


@hookimpl
def conformance_mends() -> list[Mend | Unavailable]:
    """Mends of known defects of mlx-vlm."""
    from conformance.plugins.mlx_vlm.mends import MENDS

    return list(MENDS)
