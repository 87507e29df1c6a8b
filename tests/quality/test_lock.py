"""Each stored schedule shows its entry: as released it fails as it says, and mended it is right."""

import pytest

from conformance.app.pytest_plugin.setup import make_setup
from conformance.app.run_settings import Settings
from conformance.checks.expectations import load_expectations
from conformance.core.verdict import CaseId
from conformance.run.mending import Mending

KNOWN = load_expectations()
ENTRIES = {entry.id: entry for entry in KNOWN.defects}
BY_DAY = {("mamba-padded-state", "mamba"), ("afm7-state-of-batch-cache", "afm7")}


@pytest.fixture(scope="module")
def mending():
    return Mending(make_setup(Settings(engines=("*",))).session)


def lines():
    for line in sorted(KNOWN.lock, key=lambda one: (CaseId.parse(one.case), one.entry)):
        by_day = (line.entry, line.family) in BY_DAY
        marks = () if by_day else (pytest.mark.nightly,)
        yield pytest.param(line, id="-".join(line.place), marks=marks)


@pytest.mark.parametrize("line", list(lines()))
def test_a_stored_schedule_shows_its_entry(mending, line):
    assert mending.verdict_of(line, ENTRIES) is line.verdict
