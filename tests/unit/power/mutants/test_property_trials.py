"""Mutants of functions, tried in the properties that are about them."""

import pytest
from mlx_vlm import apc

from conformance.core.properties import Property
from conformance.power.mutants.property_trials import CASE, PropertyTrials, all_properties
from conformance.power.mutants.putting_in import PutIn
from conformance.power.mutants.targets import files_of, mutants_in
from conformance.run.registry import build_registry

FILE, STORE = "mlx_vlm/models/cache.py", "mlx_vlm/apc.py"
NAME = "caches: chunks"
MUTANT = (
    "ChunkedKVCache.maybe_trim_front",
    "trim = valid - self.chunk_size",
    "trim = valid + self.chunk_size",
)


def mutant(function, before, after):
    made = mutants_in(files_of("mlx_vlm", (FILE,)), (function,))
    return next(m for m in made if (m.before, m.after) == (before, after))


@pytest.fixture(scope="module")
def properties():
    return all_properties(build_registry())


def test_what_no_schedule_needs_is_detected(properties):
    said = []
    trials = PropertyTrials(properties, lambda place, active: said.append((place, active)))
    found = mutant(*MUTANT)
    kill = trials.kill("mlx_vlm", found, PutIn(found))
    assert kill is not None
    assert (kill.case, kill.schedule, kill.checks) == (CASE, NAME, ("properties",))
    assert said[-1][0].schedule == NAME
    assert said[-1][1]


def test_what_no_property_is_about_is_not_tried():
    never = Property("never", "mlx_vlm/other.py", ("*",), lambda: 1 / 0)
    found = mutant(*MUTANT)
    trials = PropertyTrials({"mlx_vlm": [never]}, lambda *_: None)
    assert trials.kill("mlx_vlm", found, PutIn(found)) is None
    assert trials.kill("mlx_lm", found, PutIn(found)) is None


def test_a_property_that_does_not_hold_by_itself_proves_nothing():
    broken = Property("broken", FILE, ("*",), lambda: ["always"])
    found = mutant(*MUTANT)
    trials = PropertyTrials({"mlx_vlm": [broken]}, lambda *_: None)
    assert trials.kill("mlx_vlm", found, PutIn(found)) is None


@pytest.mark.nightly
def test_a_default_that_a_property_needs_is_read():
    made = mutants_in(files_of("mlx_vlm", (STORE,)), ("DiskBlockStore.find_exact_prefix",))
    found = next(m for m in made if m.before == "extra_hash: int = 0,")
    put_in = PutIn(found)
    assert put_in.is_value

    def asks():
        if apc.DiskBlockStore.find_exact_prefix.__kwdefaults__["extra_hash"] != 0:
            yield "another key"

    one = Property("asks", STORE, ("DiskBlockStore.find_exact_prefix",), asks)
    trials = PropertyTrials({"mlx_vlm": [one]}, lambda *_: None)
    assert trials.kill("mlx_vlm", found, put_in) is not None
    assert trials.reads("mlx_vlm", found, put_in)
