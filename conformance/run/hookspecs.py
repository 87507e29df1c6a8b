"""The hooks of a plugin package (entry point group ``mlx_conformance``, or a pytest conftest)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import pluggy

if TYPE_CHECKING:
    from pathlib import Path

    from conformance.core.engine import Engine
    from conformance.core.family import Family
    from conformance.core.faults import Fault
    from conformance.core.library import Library
    from conformance.core.mends import Mend
    from conformance.core.unavailable import Unavailable
    from conformance.scenarios import Scenario

PROJECT = "mlx_conformance"

hookspec = pluggy.HookspecMarker(PROJECT)
hookimpl = pluggy.HookimplMarker(PROJECT)


@hookspec
def conformance_libraries() -> Iterable[Library]:  # type: ignore[empty-body]
    """Model libraries: each builds and loads families and decodes single streams."""


@hookspec
def conformance_families() -> Iterable[Family]:  # type: ignore[empty-body]
    """Model families, each for one library."""


@hookspec
def conformance_engines() -> Iterable[type[Engine] | Unavailable]:  # type: ignore[empty-body]
    """Engine classes, each for the models of one library."""


@hookspec
def conformance_engine_names() -> Iterable[str]:  # type: ignore[empty-body]
    """Names of the plugin's engines, for a plugin whose other hooks import a library and take long.

    The other hooks are not called unless one of these engines is selected.
    """


@hookspec
def conformance_scenarios() -> Iterable[Scenario]:  # type: ignore[empty-body]
    """Scenarios, run in the order of their ``rung``."""


@hookspec
def conformance_faults() -> Iterable[Fault | Unavailable]:  # type: ignore[empty-body]
    """Faults: named, switchable defects that the checks must catch."""


@hookspec
def conformance_mends() -> Iterable[Mend | Unavailable]:  # type: ignore[empty-body]
    """Mends, the repairs of known defects: a case that a defect spoils must be right with them."""


@hookspec
def conformance_expectations() -> Iterable[Path]:  # type: ignore[empty-body]
    """Folders of expectations with the known defects of the plugin's engines."""
