"""Each fault of mlx-lm is caught by the scenario that is named first, takes effect, and goes.

By day one fault of each class is tried, and all are put in and taken out.
"""

import functools

import pytest
from miniatures.trials import Trials, by_class, traces

from conformance.core.faults.costs import costlier
from conformance.core.verdict import Verdict
from conformance.power.faults import registry_with_faults
from conformance.power.faults.mlx_lm import FAULTS
from conformance.power.faults.mlx_lm.attention import harmless
from conformance.power.mutation.killing import killed
from conformance.power.mutation.power import Unit
from conformance.power.mutation.power import trials as try_all

# The cheapest first; between them they have all traits that faults need.
FAMILIES = (
    "llama",
    "mamba2",
    "gemma3_text",
    "qwen3_next",
    "deepseek_v32",
    "llama-4bit",
    "llama-mixed-bits",
    "llama-window-600",
)


@functools.cache
def trials():
    return Trials("mlx_lm", registry_with_faults(), FAMILIES)


# Ten seconds and more, as a prompt or a call must be long; by day the same schedules find the same
# mistakes in toy engines (tests/unit/scenarios/workloads/test_marathon.py).
LONG = {
    *("F13.piece-33-turned-round", "F15.limits-of-the-first-64", "G3.window-moves-as-it-grows"),
    *("B10.removals-of-the-first-64", "D8.sixteen-processors-at-most"),
    *("G3.two-steps-for-a-call", "G3.whole-step-written-over-the-one-before"),
    "G10.last-group-of-odd-bits",
}
PRICED = [fault for fault in FAULTS if fault.priced]
OTHERS = [fault for fault in FAULTS if not fault.priced]


@pytest.mark.parametrize("fault", by_class(OTHERS, LONG))
def test_a_fault_is_caught_by_the_first_scenario_named(fault):
    before, after, hits = trials().tried(fault)
    # Of wrong calls the library accepts some, and what it keeps of an ended row holds the batch; no
    # other scenario of these families finds anything.
    assert before.verdict.good or fault.scenarios[0] in ("invalid", "kept")
    assert hits > 0
    assert killed(fault, before, after)


@pytest.mark.parametrize("fault", PRICED, ids=lambda fault: fault.name)
def test_a_priced_fault_shows_in_a_figure_and_in_no_answer(fault):
    before = trials().right("llama", fault.scenarios[0])
    after, hits = trials().wrong("llama", fault.scenarios[0], fault.inject)
    assert hits > 0
    assert not killed(fault, before, after)
    assert costlier(before, after)


def test_finite_values_at_masked_steps_are_no_fault():
    after, hits = trials().wrong("qwen3_next", "ragged", harmless)
    assert hits > 0
    assert after.verdict is Verdict.EXACT


def test_no_fault_leaves_a_trace():
    for fault, inside, afterwards in traces(FAULTS, "mlx_lm", ["models.qwen3_next"]):
        assert inside, fault.name
        assert not afterwards, fault.name


def test_states_in_half_precision_show_in_their_dtypes_alone():
    """In bfloat16 what is lost is within the noise, so that no other check sees it."""
    (fault,) = (f for f in FAULTS if f.name == "A9.states-in-half-precision")
    unit = Unit("mlx_lm", "mamba2", "bfloat16", 0, (fault.key,))
    ((kill,),) = (trial.kills for trial in try_all(trials().registry, unit))
    assert (kill.scenario, kill.checks) == ("identical", ("dtypes",))
