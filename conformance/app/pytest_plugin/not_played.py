"""What a run omits of the requested cases because a part of a plugin is missing."""

from __future__ import annotations

from collections.abc import Iterable

from conformance.app.run_settings import Settings
from conformance.core.unavailable import sentences
from conformance.core.verdict import CaseResult
from conformance.run.registry import Registry
from conformance.run.selection import DEFAULT_ENGINES


def not_played(
    settings: Settings, registry: Registry, results: Iterable[CaseResult]
) -> tuple[str, ...]:
    """Sentences about what the engines lack and the results do not show.

    Mends are reported as missing only if a known defect has none.
    """
    missed = settings.mends and any(result.unmended for result in results)
    mends = ["conformance_mends"] if missed else []
    lacking = registry.lacking(settings.engines or DEFAULT_ENGINES, also=mends)
    return tuple(f"not all was played: {line}" for line in sentences(lacking))
