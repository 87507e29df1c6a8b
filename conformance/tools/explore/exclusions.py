"""Known defects, which exploring mends or excludes so that it does not find them again."""

from __future__ import annotations

from collections.abc import Collection

from conformance.checks.expectations import Expectations
from conformance.core.verdict import Verdict
from conformance.run.mending import Mending
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


def mended(
    expectations: Expectations, mending: Mending, engine: str, family: str
) -> tuple[str, ...]:
    """The family's known defects with a mend that leaves single streams as they are."""
    about = (e for e in expectations.defects if e.is_about(engine, family))
    mends = ((entry.id, mending.mend_for(entry, family)) for entry in about)
    return tuple(name for name, mend in mends if mend is not None and not mend.single_stream)


def left_out(
    expectations: Expectations, engine: str, family: str, mended: Collection[str] = ()
) -> tuple[Feature, ...]:
    """The features with a known defect in all families; defects of single families do not count.

    Nor do those that are ``mended``.
    """
    scenarios = {
        scenario
        for entry in expectations.defects
        if "*" in entry.families and entry.is_about(engine, family) and entry.id not in mended
        for scenario in entry.verdicts
        if set(entry.wanted(scenario)) != {Verdict.POLICY}
    }
    return tuple(
        feature
        for scenario, features in _NEEDED.items()
        if scenario in scenarios
        for feature in features
    )


def verdicts(
    expectations: Expectations, engine: str, family: str, mended: Collection[str] = ()
) -> tuple[Verdict, ...]:
    """The verdicts of the family's known defects, without those that are ``mended``."""
    found = {
        verdict
        for entry in expectations.defects
        if entry.is_about(engine, family) and entry.id not in mended
        for scenario in entry.verdicts
        for verdict in entry.wanted(scenario)
    }
    return tuple(sorted(found))
