"""What ``power --quick`` tries: each kind of cache that a family has, and each fault somewhere."""

import functools

import pytest

from conformance.app.cli.show_lists import loaded_families
from conformance.core.faults.traits import traits
from conformance.core.verdict import CaseId
from conformance.power.faults import registry_with_faults
from conformance.run.session import Session

# It loads all families of mlx-vlm, or all that are quick.
ENGINES = ["mlx_lm", pytest.param("mlx_vlm", marks=pytest.mark.nightly)]


@functools.cache
def registry():
    return registry_with_faults()


@functools.cache
def quick(engine):
    families = registry().families_of(registry().engines[engine])
    return frozenset(family.name for family in families if family.facts.quick)


@functools.cache
def traits_of(engine, family):
    case = CaseId(engine, family, "batch_of_one", "float32", 0)
    return traits(Session(registry()).subject(case))


def uncovered(rows, names):
    """The kinds of caches that only families beside those of ``names`` have."""
    kinds_of = {row["family"]: set(row["caches"].split(", ")) for row in rows if row["positions"]}
    covered = set().union(*(kinds for name, kinds in kinds_of.items() if name in names))
    return set().union(*kinds_of.values()) - covered


@pytest.mark.parametrize("engine", ENGINES)
def test_the_quick_families_have_all_kinds_of_caches(engine):
    rows = loaded_families(registry(), (engine,))["families loaded"]
    assert not uncovered(rows, quick(engine))
    assert uncovered(rows, quick(engine) - {"deepseek_v41"})  # the only one with its cache


@pytest.mark.parametrize("engine", ENGINES)
def test_each_fault_can_show_in_a_quick_family(engine):
    faults = [fault for fault in registry().faults.values() if fault.engine == engine]
    nowhere = [
        fault.name
        for fault in faults
        if all(fault.lacks(traits_of(engine, family)) for family in sorted(quick(engine)))
    ]
    assert nowhere == []
