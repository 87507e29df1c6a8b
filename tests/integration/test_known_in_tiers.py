"""A case that the default tier runs only with its known defects mended is as expected in full.

By day one family of mlx-lm; all others are nightly.
"""

import functools

import pytest

from conformance.app.pytest_plugin.own_process import ends_process
from conformance.app.pytest_plugin.setup import make_setup
from conformance.app.run_settings import Settings
from conformance.checks.expectations import load_expectations
from conformance.run.registry import build_registry
from conformance.run.showing import Showing
from conformance.run.tiers import tier

ENGINES = ("mlx_lm", "mlx_vlm")
DAY = ("mlx_lm", "olmo")


@functools.cache
def default():
    """The setup of a default run of all families."""
    return make_setup(Settings(engines=ENGINES, tier="default"))


@functools.cache
def full():
    return make_setup(Settings(engines=ENGINES, tier="full"))


@functools.cache
def alone():
    """The cases that are run mended alone, by engine and family."""
    setup = default()
    showing = Showing(setup.expectations, setup.registry, setup.selection.tier, setup.selected)
    found = {}
    for case in filter(showing.to_mend, setup.selected):
        found.setdefault((case.engine, case.family), []).append(case)
    return found


def concerned():
    """The families of both engines that an entry names."""
    known, registry = load_expectations(), build_registry(engines=ENGINES)
    places = {
        (engine, family)
        for engine in ENGINES
        for library, family in registry.families
        if library == engine and any(e.is_about(engine, family) for e in known.defects)
    }
    return sorted(places)


@pytest.mark.parametrize(
    "place",
    [
        pytest.param(p, id="/".join(p), marks=[pytest.mark.nightly] * (p != DAY))
        for p in concerned()
    ],
)
def test_what_is_run_only_mended_is_as_expected_in_full(place):
    for case in alone().get(place, []):
        if ends_process(default(), case):
            continue
        judge = default().judge
        # With mends that make other pieces, what a schedule is to reach may be missing: then it is
        # run as released.
        mended = judge.played(case, functools.partial(default().session.run, case))
        assert judge.judged(case, mended).expected
        found = full().judge.judged(case, full().session.run(case))
        assert found.expected, found.evidence[:3]
        if found.mended is not None:
            assert found.mended.verdict.good


def test_many_cases_are_run_only_mended():
    assert DAY in alone()
    assert sum(map(len, alone().values())) > 100
    assert tier("full") is full().selection.tier
    assert not any(map(full().judge._to_mend, full().selected[:100]))


def test_each_is_named_by_a_case_that_shows_it():
    """A case that is run as released, in the same family, has every entry of the others."""
    setup = default()
    showing = Showing(setup.expectations, setup.registry, setup.selection.tier, setup.selected)
    for group in showing._groups.values():
        mended = {case for case in group if showing.to_mend(case)}
        if mended:
            shown = {e.id for case in group - mended for e in showing._surely(case)}
            assert all({e.id for e in showing._surely(case)} <= shown for case in mended)
