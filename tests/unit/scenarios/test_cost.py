"""Whose work is counted; that each contract is broken by a fault is in `tests/faults/`."""

import pytest

from conformance.core.engine import Capability
from conformance.core.representatives import representatives
from conformance.power.faults import registry_with_faults
from conformance.scenarios.cost import COSTS


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
    counted = representatives().counted["mlx_lm"]
    assert not scenario.applies(registry.families["mlx_lm", counted[0]])
    reason = scenario.applies(registry.families["mlx_lm", "qwen2"])
    assert all(name in reason for name in counted)
