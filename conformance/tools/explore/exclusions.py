"""Known defects, which exploring excludes so that it does not find them again."""

from __future__ import annotations

from conformance.checks.expectations import Expectations
from conformance.core.verdict import Verdict
from conformance.scenarios.features import Feature

# The features that trigger a scenario's defects.
_NEEDED = {
    "window": (Feature.BOUNDED,),
    "samplers": (Feature.PROCESSORS,),
    "structured": (Feature.GRAMMAR,),
    "stop_sequences": (Feature.STOP,),
    "prompt_cache": (Feature.CONTINUES, Feature.SEGMENTS),
    "prefix_caching": (Feature.CACHING,),
    "quantized": (Feature.QUANTIZED,),
    "speculative": (Feature.DRAFTS,),
    "threads": (Feature.THREAD,),
    "cancelled": (Feature.REMOVALS,),
    "chunked": (Feature.PIECES,),
}

# Only entries about invalid calls, which schedules here never make, leave a family clean.
_APART = frozenset({"invalid"})


def clean(expectations: Expectations, engine: str, family: str) -> bool:
    """Whether a family's schedules are free of the library's known defects."""
    return not any(
        entry.is_about(engine, family) and not _APART.issuperset(entry.verdicts)
        for entry in expectations.defects
        if "*" not in entry.families
    )


def left_out(expectations: Expectations, engine: str, family: str) -> tuple[Feature, ...]:
    """The features with a known defect in all families; defects of single families do not count."""
    scenarios = {
        scenario
        for entry in expectations.defects
        if "*" in entry.families and entry.is_about(engine, family)
        for scenario in entry.verdicts
        if set(entry.wanted(scenario)) != {Verdict.POLICY}
    }
    return tuple(
        feature
        for scenario, features in _NEEDED.items()
        if scenario in scenarios
        for feature in features
    )


def verdicts(expectations: Expectations, engine: str, family: str) -> tuple[Verdict, ...]:
    """The verdicts of the family's known defects."""
    found = {
        verdict
        for entry in expectations.defects
        if entry.is_about(engine, family)
        for scenario in entry.verdicts
        for verdict in entry.wanted(scenario)
    }
    return tuple(sorted(found))
