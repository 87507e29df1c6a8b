"""Reports capabilities that an engine declares and no case of the run has used."""

from __future__ import annotations

from collections.abc import Sequence

from conformance.core.engine import Capability, Engine, equipped
from conformance.core.family import Family
from conformance.core.verdict import CaseResult
from conformance.run.registry import Registry
from conformance.run.selection import Selection
from conformance.scenarios.exercised import USES


def unexercised(
    registry: Registry, selection: Selection, results: Sequence[CaseResult]
) -> tuple[str, ...]:
    """A sentence for each engine with declared but unused capabilities, which remain unproven.

    None if single scenarios were selected, and none for a server, whose scenarios each need what
    they use. An engine without a completed run is reported by its verdicts.
    """
    if selection.scenarios:
        return ()
    found = []
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
        if left:
            more = selection.tier.leaves_out(engine.library)
            found.append(
                f"{name} declares {', '.join(left)}: no schedule that was played used that, so "
                f"nothing is proven of it{' (--tier full plays more)' if more else ''}"
            )
    return tuple(found)


def _useless(engine: type[Engine], families: Sequence[Family]) -> set[Capability]:
    """The capabilities that none of the families in the run can use."""
    media = any(set(family.facts.modalities) - {"text"} for family in families)
    drafts = any(equipped(family, engine).facts.drafters for family in families)
    useful = {Capability.MEDIA: media, Capability.SPECULATIVE: drafts}
    return {capability for capability, there in useful.items() if not there}
