"""The hooks of mlx-lm's server. Each imports its modules, which takes long, only when called."""

from __future__ import annotations

from typing import TYPE_CHECKING

from conformance.run.hookspecs import hookimpl

if TYPE_CHECKING:
    from conformance.core.engine import Engine
    from conformance.core.mends import Mend
    from conformance.scenarios import Scenario

# ruff: noqa: PLC0415


@hookimpl
def conformance_engine_names() -> list[str]:
    """The names of the engines: nothing is imported unless one of them is selected."""
    return ["mlx_lm_server", "mlx_lm_server_tensor_parallel", "mlx_lm_server_pipeline"]


@hookimpl
def conformance_engines() -> list[type[Engine]]:
    """The server in one process and in two.

    The server is imported here too, so that an import error is reported before it is started.
    """
    import mlx_lm.server  # noqa: F401

    from conformance.plugins.servers.mlx_lm_server import (
        MlxLmServer,
        PipelineServer,
        TensorParallelServer,
    )

    return [MlxLmServer, TensorParallelServer, PipelineServer]


@hookimpl
def conformance_scenarios() -> list[Scenario]:
    """The scenarios for servers."""
    from conformance.scenarios.served import SERVED_SCENARIOS

    return list(SERVED_SCENARIOS)


@hookimpl
def conformance_mends() -> list[Mend]:
    """The mends of the server's known defects."""
    from conformance.plugins.servers.mends.mlx_lm import MENDS

    return list(MENDS)
