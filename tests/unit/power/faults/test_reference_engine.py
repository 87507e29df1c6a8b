"""Each fault of the reference engine is caught by the scenario named first, takes effect, goes."""

import functools

import pytest
from miniatures.trials import Trials, traces

from conformance.power.faults import registry_with_faults
from conformance.power.faults.reference_engine import FAULTS
from conformance.power.mutation.killing import killed

# The cheapest first; between them they have all traits that faults need.
FAMILIES = ("llama", "mamba2", "gemma3_text")


@functools.cache
def trials():
    return Trials("reference_mixed", registry_with_faults(), FAMILIES)


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_a_fault_is_caught_by_the_first_scenario_named(fault):
    before, after, hits = trials().tried(fault)
    assert before.verdict.good
    assert hits > 0
    assert killed(fault, before, after)
    assert "failure" not in {finding.check for finding in after.evidence}


def test_no_fault_leaves_a_trace():
    for fault, inside, afterwards in traces(FAULTS, "conformance", ["reference.prefill"]):
        assert inside, fault.name
        assert not afterwards, fault.name
