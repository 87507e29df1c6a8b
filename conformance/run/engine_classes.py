"""Checks the declarations of an engine class."""

from __future__ import annotations

from conformance.core.engine import Capability, Engine
from conformance.core.prefix_reuse import PrefixReuse


def engine_problem(engine: type[Engine]) -> str:
    """The problem with an engine class; empty if none."""
    for attribute in ("name", "library", "capabilities"):
        if not hasattr(engine, attribute):
            return f"has no attribute {attribute!r}"
    if engine.__abstractmethods__:
        return f"has no method {min(engine.__abstractmethods__)!r}"
    capabilities: object = engine.capabilities
    if not isinstance(capabilities, frozenset):
        return "must declare its capabilities as a frozenset"
    for capability in capabilities:
        if not isinstance(capability, Capability):
            return f"declares an unknown capability: {capability!r}"
    return _declared(engine)


def _declared(engine: type[Engine]) -> str:
    """The problem with attributes that have a default."""
    if not isinstance(engine.prefix_reuse, PrefixReuse):
        return "must declare prefix_reuse as a PrefixReuse"
    packages: object = engine.packages
    if not (isinstance(packages, tuple) and all(isinstance(name, str) for name in packages)):
        return "must declare packages as a tuple of names"
    return ""
