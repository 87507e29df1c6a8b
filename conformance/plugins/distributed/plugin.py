"""The hooks of split models. Each imports its modules, which takes long, only when called."""

from __future__ import annotations

from typing import TYPE_CHECKING

from conformance.run.hookspecs import hookimpl

if TYPE_CHECKING:
    from conformance.core.engine import Engine

# ruff: noqa: PLC0415


@hookimpl
def conformance_engine_names() -> list[str]:
    """The names of the engines: nothing is imported unless one of them is selected."""
    return [
        "mlx_lm_tensor_parallel",
        "mlx_lm_tensor_parallel_3",
        "mlx_lm_pipeline",
        "mlx_lm_pipeline_3",
    ]


@hookimpl
def conformance_engines() -> list[type[Engine]]:
    """The engines of two and of three processes."""
    from conformance.plugins.distributed.engine import ENGINES

    return list(ENGINES)
