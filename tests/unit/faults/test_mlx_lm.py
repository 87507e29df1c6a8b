"""Each fault of mlx-lm is caught by the scenario that is named first, takes effect, and goes."""

import functools
import importlib
import re
import sys

import mlx.core as mx
import pytest

from conformance.faults import Fault, Hits
from conformance.faults.costs import costlier
from conformance.faults.killing import killed
from conformance.faults.mlx_lm import FAULTS
from conformance.faults.mlx_lm.padding_nan import HARMLESS
from conformance.faults.traits import traits
from conformance.registry import build_registry
from conformance.session import Session
from conformance.verdict import CaseId, Verdict

# The cheapest first; between them they have all traits that faults need.
FAMILIES = ("llama", "mamba2", "gemma3_text", "qwen3_next", "deepseek_v32")
# Entries of the catalogue of historic defects that this engine can host.
ENTRIES = {
    *("A1", "A2", "A3", "A4", "A5", "A6", "A7", "A8", "A9", "A10", "A11"),
    *("B1", "B2", "B4", "B5", "B6", "B7", "B8", "B9", "B10", "B14", "B15", "B16", "B17", "B18"),
    *("B19", "C1", "C4", "C5", "C6", "C7", "D1", "D2", "D5", "D6", "D7", "D8", "D9"),
    *("F1", "F2", "F3", "F4", "F5", "F6", "F7", "F11", "F12", "F13", "F14", "F15"),
}
# Of wrong calls the library accepts some, and a prompt that it keeps whole it cannot serve; nothing
# else is found in these families.
KNOWN = {"invalid", "prefix_caching"}
# Faults that no check sees yet, and what is missing.
UNSEEN = {
    "A10.slices-hold-the-batch": "no figure tells the memory that buffers hold",
    "D5.chain-of-sums": "no figure tells how much of the graph waits to be computed",
}


@functools.cache
def registry():
    return build_registry()


@functools.cache
def session(family):
    """One for each family, so that all models stay."""
    return Session(registry())


def case(family, scenario):
    return CaseId("mlx_lm", family, scenario, "float32", 0)


@functools.cache
def right(family, scenario):
    return session(family).run(case(family, scenario))


def wrong(family, scenario, inject):
    """The result with the fault in place, and how often it took effect."""
    hits = Hits()
    result = session(family).run(case(family, scenario), around=functools.partial(inject, hits))
    return result, hits.count


@functools.cache
def traits_of(family):
    return traits(session(family).subject(case(family, "ragged")))


def family_for(fault):
    return next(family for family in FAMILIES if not fault.lacks(traits_of(family)))


def told(fault):
    marks = ()
    if fault.name in UNSEEN:
        marks = pytest.mark.xfail(reason=UNSEEN[fault.name], strict=True)
    return pytest.param(fault, id=fault.name, marks=marks)


@pytest.mark.parametrize("fault", [told(fault) for fault in FAULTS if not fault.priced])
def test_a_fault_is_caught_by_the_first_scenario_named(fault):
    scenario = fault.kills[0]
    family = family_for(fault)
    before = right(family, scenario)
    assert before.verdict.good or scenario in KNOWN
    after, hits = wrong(family, scenario, fault.inject)
    assert hits > 0
    assert killed(fault, before, after)


@pytest.mark.parametrize("fault", [told(fault) for fault in FAULTS if fault.priced])
def test_a_priced_fault_shows_in_a_figure_and_in_no_answer(fault):
    before = right("llama", fault.kills[0])
    after, hits = wrong("llama", fault.kills[0], fault.inject)
    assert hits > 0
    assert not killed(fault, before, after)
    assert costlier(before, after)


def test_finite_values_at_masked_steps_are_no_fault():
    after, hits = wrong("qwen3_next", "ragged", HARMLESS)
    assert hits > 0
    assert after.verdict is Verdict.EXACT


def test_all_entries_that_the_engine_hosts_are_there():
    assert {fault.name.partition(".")[0] for fault in FAULTS} == ENTRIES


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_a_fault_tells_what_it_is(fault):
    assert re.fullmatch(r"[A-F]\d+\.[a-z0-9-]+", fault.name)
    assert fault.engine == "mlx_lm"
    assert fault.source
    assert fault.summary.endswith(".")
    assert set(fault.kills) <= {*registry().scenarios}


def test_the_registry_has_them():
    assert all(registry().faults[fault.key] is fault for fault in FAULTS)


def library():
    """What every class and module of mlx-lm holds, and the module of fast functions."""
    importlib.import_module("mlx_lm.models.qwen3_next")
    modules = [m for name, m in sys.modules.items() if name.partition(".")[0] == "mlx_lm"]
    owners = [mx.fast, *modules]
    owners += [kind for m in modules for kind in vars(m).values() if isinstance(kind, type)]
    return {id(owner): (owner, dict(vars(owner))) for owner in owners}


def changes(before, after):
    """Names of attributes that are not the same object any more."""
    return {
        f"{owner}.{name}"
        for key, (owner, held) in after.items()
        for name in {*held, *before[key][1]}
        if held.get(name, Fault) is not before[key][1].get(name, Fault)
    }


def fail_within(fault, before):
    with fault.inject(Hits()):
        assert changes(before, library()), fault.name
        raise KeyError(fault.name)


def test_no_fault_leaves_a_trace():
    before = library()
    for fault in FAULTS:
        with pytest.raises(KeyError):
            fail_within(fault, before)
        assert not changes(before, library()), fault.name
