"""An explanation names the place that a fault breaks, within ten seconds.

By day ``unit/tools/explain`` and a command of the documents name such places. Here a few of each
engine; all that have a place with ``CONFORMANCE_QUALITY=all``, which takes an hour.
``conformance explain --faults GLOB --dtype DTYPE`` prints the same as a table.
"""

import os

import pytest

from conformance.power.faults import registry_with_faults
from conformance.tools.explain.accuracy import trials

ALL = os.environ.get("CONFORMANCE_QUALITY") == "all"
# Beside other tests on the same cores an explanation may take longer than by itself.
SECONDS = 10 if ALL else 60
# With the quick family in which each is cheapest to show.
FEW = (
    ("mlx_lm/B6.mask-without-padding", "llama"),
    ("mlx_vlm/C2.image-of-another-row", "gemma3"),
    ("reference_mixed/E3.plan-of-all-rows", "llama"),
)
# What is known to be named wrongly, and why.
_READ = "the attention is named before the cache that it reads"
MISSED = {
    "mlx_vlm/A9.padding-of-one-side-of-a-join": "raises in the model, whose masks it breaks",
    "mlx_vlm/F4.block-freed-while-held": "the row's position differs before its cache does",
    "mlx_vlm/D4.plain-rows-merged": "its caches are of the class that they should not be",
    "mlx_vlm/B21.tuple-out-of-step": _READ,
    "mlx_vlm/B21.quantized-twice": _READ,
    "mlx_vlm/B21.turbo-norms-of-another-row-on-join": _READ,
    "mlx_vlm/F6.ring-taken-for-a-line": _READ,
    "mlx_vlm/F9.window-not-rolled-back": _READ,
    "reference_mixed/F9.window-not-rolled-back": _READ,
}


@pytest.fixture(scope="module")
def registry():
    return registry_with_faults()


def chosen(registry):
    """Each defect with the families in which it may be shown."""
    if not ALL:
        return [(registry.faults[key], [family]) for key, family in FEW]
    quick = {
        engine: [f.name for f in registry.families_of(registry.engines[engine]) if f.facts.quick]
        for engine in registry.engines
    }
    return [(f, quick[f.engine]) for f in registry.faults.values() if f.where]


@pytest.mark.nightly
def test_the_place_of_each_defect_is_named_in_time(registry):
    found = [next(trials(registry, [f], families)) for f, families in chosen(registry)]
    wrong = {trial.fault: trial.where and trial.where.site for trial in found if not trial.hit}
    slow = {trial.fault: trial.seconds for trial in found if trial.seconds > SECONDS}
    assert {fault: place for fault, place in wrong.items() if fault not in MISSED} == {}
    assert slow == {}


def test_what_is_missed_is_in_the_catalogue_and_has_a_place(registry):
    assert all(registry.faults[key].where for key in MISSED)
