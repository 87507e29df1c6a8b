"""The hooks of any server at a URL. They import what they need only when called."""

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
    """Without these nothing is imported."""
    return ["http"]


@hookimpl
def conformance_libraries() -> list[Library]:
    """The server asked alone."""
    from conformance.plugins.servers.http import HttpLibrary

    return [HttpLibrary()]


@hookimpl
def conformance_families() -> list[Family]:
    """Whatever the server serves."""
    from conformance.plugins.servers.http import served_family

    return [served_family()]


@hookimpl
def conformance_engines() -> list[type[Engine]]:
    """The server."""
    from conformance.plugins.servers.http import HttpEngine

    return [HttpEngine]


@hookimpl
def conformance_scenarios() -> list[Scenario]:
    """What is asked of servers."""
    from conformance.scenarios.served import SERVED_SCENARIOS

    return list(SERVED_SCENARIOS)
