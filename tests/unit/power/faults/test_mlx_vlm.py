"""Each fault of mlx-vlm is caught by the scenario that is named first, takes effect, and goes.

By day one fault of each class is tried, and all are put in and taken out.
"""

import dataclasses
import functools
import re

import mlx.core as mx
import pytest
from miniatures.trials import Trials, by_class, traces

from conformance.power.faults import registry_with_faults
from conformance.power.faults.mlx_vlm import FAULTS, quantized
from conformance.power.faults.shared_faults import differs
from conformance.power.mutation.killing import killed

# The cheapest first; between them they have all traits that faults need.
FAMILIES = (
    *("llava", "qwen2_vl", "qwen3_next", "lfm2", "gemma3", "mllama", "falcon_h1"),
    *("qwen3_vl", "gemma4", "llama4", "deepseek_v4", "glm5_next"),
)
# Schedules that are left out: there are cheaper ones of each kind.
LEFT_OUT = re.compile(r"alone_|start_|image_(uniform|turbo)|uniform_8|eagle3_|mtp_(?!of_one)")

# Several seconds each; by day another one of the class shows, in less.
LONG = {
    *("B21.turbo-norms-of-the-first-joining-row", "E6.likely-drafts-accepted"),
    *("B13.embeddings-of-another-row", "B14.rope-offset-of-row-0", "B20.last-layer-quantized"),
    *("D5.outputs-of-all-steps-kept", "D5.paddings-that-pile-up", "D9.restored-rows-not-quantized"),
}


@functools.cache
def trials():
    made = registry_with_faults()
    scenarios = {name: shorter(scenario) for name, scenario in made.scenarios.items()}
    return Trials("mlx_vlm", dataclasses.replace(made, scenarios=scenarios), FAMILIES, LEFT_OUT)


def shorter(scenario):
    def make(brief):
        return [s for s in scenario.make(brief) if not LEFT_OUT.match(s.name)]

    fewer = scenario.name in ("quantized", "speculative")
    return dataclasses.replace(scenario, make=make, witnesses=()) if fewer else scenario


@pytest.mark.parametrize("fault", by_class(FAULTS, LONG))
def test_a_fault_is_caught_by_the_first_scenario_named(fault):
    before, after, hits = trials().tried(fault)
    assert hits > 0
    assert killed(fault, before, after)


def test_no_fault_leaves_a_trace():
    modules = ("models.mllama.language", "speculative.dflash", "speculative.eagle3")
    for fault, inside, afterwards in traces(FAULTS, "mlx_vlm", modules):
        assert inside, fault.name
        assert not afterwards, fault.name


def test_a_last_layer_that_is_quantized_anyway_is_no_fault():
    fault = trials().registry.faults["mlx_vlm/B20.last-layer-quantized"]
    assert trials().wrong("falcon_h1", "quantized", fault.inject)[1] == 0


@pytest.mark.parametrize("size", [16, 32, 80])
def test_a_turboquant_cache_of_few_bits_takes_heads_that_have_no_groups(size):
    mx.random.seed(0)
    keys, values = mx.random.normal((1, 2, 3, size)), mx.random.normal((1, 2, 3, size))
    coarse = quantized._coarse_turbo(keys, values)
    assert [array.shape for array in coarse] == [keys.shape, values.shape]
    assert all(map(differs, coarse, (keys, values)))
