"""The hooks of the mlx-lm plugin."""

from __future__ import annotations

from pathlib import Path

from conformance.core.engine import Engine
from conformance.core.family import Family, load_families
from conformance.core.faults import Fault
from conformance.core.library import Library
from conformance.core.mends import Mend
from conformance.plugins.mlx_lm.batch_generate import MlxLmBatchGenerate
from conformance.plugins.mlx_lm.compat import prefills_in_pieces
from conformance.plugins.mlx_lm.engine import MlxLmEngine
from conformance.plugins.mlx_lm.library import MlxLm
from conformance.run.hookspecs import hookimpl
from conformance.scenarios import LADDER, Scenario
from conformance.tools.explore.replay import CORPUS


@hookimpl
def conformance_libraries() -> list[Library]:
    """mlx-lm."""
    return [MlxLm()]


@hookimpl
def conformance_families() -> list[Family]:
    """The family files of this folder."""
    return list(load_families(Path(__file__).parent / "families"))


@hookimpl
def conformance_engines() -> list[type[Engine]]:
    """``BatchGenerator`` and ``batch_generate``."""
    return [MlxLmEngine, MlxLmBatchGenerate]


@hookimpl
def conformance_scenarios() -> list[Scenario]:
    """The ladder, for any engine as far as its capabilities allow; and the corpus."""
    return [*LADDER, CORPUS]


@hookimpl
def conformance_faults() -> list[Fault]:
    """Historic defects of ``BatchGenerator``. Imported late, because they import the library.

    None before 0.31.2, whose generator does not have the parts that they change.
    """
    if not prefills_in_pieces():
        return []
    from conformance.plugins.mlx_lm.faults import FAULTS  # noqa: PLC0415

    return list(FAULTS)


@hookimpl
def conformance_mends() -> list[Mend]:
    """Repairs of known defects of mlx-lm; none before 0.31.2, as for faults."""
    if not prefills_in_pieces():
        return []
    from conformance.plugins.mlx_lm.mends import MENDS  # noqa: PLC0415

    return list(MENDS)
