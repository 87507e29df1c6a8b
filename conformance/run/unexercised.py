"""Reports what nothing proved: capabilities never used, and methods without their capability."""

from __future__ import annotations

from collections.abc import Sequence

from conformance.core.engine import Capability, Engine, equipped
from conformance.core.family import Family
from conformance.core.verdict import CaseResult
from conformance.run.registry import Registry
from conformance.run.selection import Selection
from conformance.scenarios.exercised import USES

_OF_METHODS = {
    "extract": Capability.PREFIX,
    "reloaded": Capability.SAVED,
    "probe": Capability.PROBES,
    "give_up": Capability.WEIGHED,
    "give_up_stored": Capability.STORED,
}
"""The capability without which nothing calls a method."""


def undeclared(engine: type[Engine]) -> tuple[str, ...]:
    """A sentence about methods that the engine's own class has, and declares no capability for."""
    found = {
        name: capability
        for name, capability in _OF_METHODS.items()
        if name in vars(engine) and capability not in engine.capabilities
    }
    if not found:
        return ()
    methods = ", ".join(f"{name}()" for name in found)
    names = ", ".join(dict.fromkeys(found.values()))
    return (f"{engine.name} has {methods} and does not declare {names}: nothing calls that",)


def unexercised(
    registry: Registry, selection: Selection, results: Sequence[CaseResult]
) -> tuple[str, ...]:
    """A sentence for each engine with unused capabilities or methods, which remain unproven.

    None if single scenarios were selected, and none for a server, whose scenarios each need what
    they use. An engine without a completed run is reported by its verdicts.
    """
    if selection.scenarios:
        return ()
    found: list[str] = []
    for name in dict.fromkeys(result.engine for result in results):
        engine, own = registry.engines[name], [r for r in results if r.engine == name]
        used = {capability for result in own for capability in result.exercised}
        if not used or Capability.SERVED in engine.capabilities:
            continue
        families = [
            family
            for family in registry.families_of(engine)
            if family.name in {result.family for result in own}
        ]
        left = sorted((engine.capabilities & USES.keys()) - used - _useless(engine, families))
        found += undeclared(engine)
        if left:
            more = selection.tier.leaves_out(engine.library)
            found.append(
                f"{name}: unproven, as no schedule used it: {', '.join(left)}"
                f"{' (--tier full plays more)' if more else ''}"
            )
    return tuple(found)


def _useless(engine: type[Engine], families: Sequence[Family]) -> set[Capability]:
    """The capabilities that none of the families in the run can use."""
    media = any(set(family.facts.modalities) - {"text"} for family in families)
    drafts = any(equipped(family, engine).facts.drafters for family in families)
    useful = {Capability.MEDIA: media, Capability.SPECULATIVE: drafts}
    return {capability for capability, there in useful.items() if not there}
