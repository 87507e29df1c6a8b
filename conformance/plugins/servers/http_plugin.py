"""The hooks of any server at a URL. Each imports its modules only when called."""

from __future__ import annotations

from typing import TYPE_CHECKING

from conformance.run.hookspecs import hookimpl

if TYPE_CHECKING:
    from conformance.core.engine import Engine
    from conformance.core.family import Family
    from conformance.core.library import Library
    from conformance.scenarios import Scenario

# ruff: noqa: PLC0415


@hookimpl
def conformance_engine_names() -> list[str]:
    """The names of the engines: nothing is imported unless one of them is selected."""
    return ["http"]


@hookimpl
def conformance_libraries() -> list[Library]:
    """The server as its own library."""
    from conformance.plugins.servers.http import HttpLibrary

    return [HttpLibrary()]


@hookimpl
def conformance_families() -> list[Family]:
    """The family for whatever model the server has."""
    from conformance.plugins.servers.http import served_family

    return [served_family()]


@hookimpl
def conformance_engines() -> list[type[Engine]]:
    """The server as an engine."""
    from conformance.plugins.servers.http import HttpEngine

    return [HttpEngine]


@hookimpl
def conformance_scenarios() -> list[Scenario]:
    """The scenarios for servers."""
    from conformance.scenarios.served import SERVED_SCENARIOS

    return list(SERVED_SCENARIOS)
