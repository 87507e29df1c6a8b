"""The hooks of the reference engine. Each imports its modules only when called."""

from __future__ import annotations

from typing import TYPE_CHECKING

from conformance.run.hookspecs import hookimpl

if TYPE_CHECKING:
    from conformance.core.engine import Engine

# ruff: noqa: PLC0415


@hookimpl
def conformance_engines() -> list[type[Engine]]:
    """The three engines, which differ in their prefill."""
    from conformance.plugins.reference_engine import engines

    return [engines.ReferenceSolo, engines.ReferencePadded, engines.ReferenceMixed]
