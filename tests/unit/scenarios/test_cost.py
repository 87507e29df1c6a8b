"""Each contract is kept by the released engine and broken by a fault that wastes what it bounds."""

import functools

import pytest
from miniatures.trials import Trials

from conformance.core.contracts import contracts
from conformance.core.engine import Capability
from conformance.core.verdict import Verdict
from conformance.power.faults import registry_with_faults
from conformance.scenarios.cost import COSTS

# A fault, the family in which it is planted, and the contract that it breaks.
PLANTED = [
    ("mlx_lm/A4.padded-to-the-longest", "mamba2", "cost_positions/twentieth", "positions"),
    ("mlx_lm/A4.pieces-half-as-long", "llama", "cost_late/late", "first_token"),
    ("mlx_lm/B19.prefill-before-decode", "llama", "cost_late/late", "others_calls"),
    ("mlx_lm/C5.offsets-read-at-each-step", "llama", "cost_reads/steps", "host_reads"),
    ("mlx_lm/F5.half-of-a-kept-prefix", "llama", "cost_prefix/longer", "prefix"),
    ("mlx_lm/D5.chain-of-sums", "llama", "cost_lasting/lasting", "graph"),
    ("mlx_lm/D5.outputs-of-all-steps-kept", "llama", "cost_lasting/lasting", "arrays"),
    ("mlx_vlm/C5.next-tokens-read-at-once", "llama", "cost_reads/steps", "host_reads"),
    ("mlx_vlm/D5.groups-half-as-large", "llama-wide", "cost_quantized/bits_8", "bytes_8"),
    ("mlx_vlm/D5.groups-half-as-large", "llama-wide", "cost_quantized/bits_4", "bytes_4"),
]


@functools.cache
def trials(engine):
    return Trials(engine, registry_with_faults(), ())


@functools.cache
def plain(engine, family, scenario, schedules):
    return trials(engine).played(family, scenario, schedules)


def counts(result):
    return {
        (schedule.name, cost.contract): cost
        for schedule in result.schedules
        for cost in schedule.costs
    }


@pytest.mark.parametrize(("key", "family", "place", "contract"), PLANTED)
def test_a_planted_fault_breaks_its_contract(key, family, place, contract):
    engine = key.partition("/")[0]
    scenario, _, schedule = place.partition("/")
    only = ("plain", schedule) if scenario == "cost_quantized" else (schedule,)
    right = plain(engine, family, scenario, only)
    assert right.verdict is Verdict.EXACT
    assert counts(right)[schedule, contract].kept
    fault = trials(engine).registry.faults[key]
    wrong, hits = trials(engine).wrong(family, scenario, fault.inject, only=only)
    assert hits > 0
    assert not counts(wrong)[schedule, contract].kept
    assert any(
        f.verdict is Verdict.COST and f.schedule == schedule and f"`{contract}`" in f.cause
        for f in wrong.evidence
    )
    assert not wrong.verdict.good


@pytest.mark.parametrize("scenario", COSTS, ids=lambda scenario: scenario.name)
def test_only_engines_whose_work_is_calls_of_the_model_are_counted(scenario):
    assert Capability.METERED in scenario.needs
    engines = registry_with_faults().engines.values()
    playing = {e.name for e in engines if not scenario.lacking(e.capabilities)}
    assert not any(name.startswith("reference") or name.endswith("server") for name in playing)
    assert playing & {"mlx_lm", "mlx_vlm"}


def test_families_that_are_not_counted_say_which_are():
    registry = registry_with_faults()
    (scenario,) = (s for s in COSTS if s.name == "cost_rows")
    counted = contracts().families["mlx_lm"]
    assert not scenario.applies(registry.families["mlx_lm", counted[0]])
    reason = scenario.applies(registry.families["mlx_lm", "qwen2"])
    assert all(name in reason for name in counted)
