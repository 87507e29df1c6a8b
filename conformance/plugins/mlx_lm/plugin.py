"""The hooks of the mlx-lm plugin. Each imports its own modules, so that each fails alone."""

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
    from conformance.scenarios import Scenario

# ruff: noqa: PLC0415

FAMILIES = Path(__file__).parent / "families"


@hookimpl
def conformance_libraries() -> list[Library]:
    """The library mlx-lm."""
    from conformance.plugins.mlx_lm.library import MlxLm

    return [MlxLm()]


@hookimpl
def conformance_families() -> list[Family]:
    """The family files of this folder."""
    from conformance.core.family import load_families

    return list(load_families(FAMILIES))


@hookimpl
def conformance_engines() -> list[type[Engine] | Unavailable]:
    """The engines of ``BatchGenerator`` and ``batch_generate``."""
    from conformance.core.unavailable import engines_of

    return engines_of(
        "conformance.plugins.mlx_lm",
        {
            "mlx_lm": "engine.MlxLmEngine",
            "mlx_lm_batch_generate": "batch_generate.MlxLmBatchGenerate",
        },
    )


@hookimpl
def conformance_scenarios() -> list[Scenario]:
    """The ladder, for any engine that has the needed capabilities, and the corpus."""
    from conformance.scenarios import LADDER
    from conformance.tools.explore.corpus import CORPUS

    return [*LADDER, CORPUS]


@hookimpl
def conformance_mends() -> list[Mend | Unavailable]:
    """Mends of known defects of mlx-lm; like faults, none before 0.31.2."""
    from conformance.plugins.mlx_lm.compat import prefills_in_pieces

    if not prefills_in_pieces():
        return []
    from conformance.plugins.mlx_lm.mends import MENDS

    return list(MENDS)
