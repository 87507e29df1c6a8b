"""The hooks of mlx-vlm's server. Each imports its modules, which takes long, only when called."""

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
    return ["mlx_vlm_server"]


@hookimpl
def conformance_engines() -> list[type[Engine]]:
    """The server as an engine.

    The server is imported here too, so that an import error is reported before it is started.
    """
    import mlx_vlm.server  # noqa: F401

    from conformance.plugins.servers.mlx_vlm_server import MlxVlmServer

    return [MlxVlmServer]


@hookimpl
def conformance_scenarios() -> list[Scenario]:
    """The scenarios for servers."""
    from conformance.scenarios.served import SERVED_SCENARIOS

    return list(SERVED_SCENARIOS)


@hookimpl
def conformance_mends() -> list[Mend]:
    """The mends of the server's known defects."""
    from conformance.plugins.servers.mends.mlx_vlm import MENDS

    return list(MENDS)
