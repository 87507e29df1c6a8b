"""What a known defect of the tiny family says about a checkpoint of the same module."""

from types import SimpleNamespace

import pytest
from results_by_hand import make_finding, make_result

from conformance.app.pytest_plugin.setup import Setup
from conformance.checks.expectations import Defect, Expectations
from conformance.core.verdict import ScheduleResult, Verdict

CASE = "mlx_lm/my-model/ragged/float32/0"


@pytest.fixture
def setup():
    """Of a checkpoint of ``plamo2``, which has a known defect in one schedule."""
    entry = Defect(
        **{"id": "lost-state", "engines": ("mlx_lm",), "families": ("plamo2",), "why": "it is"},
        **{"package": "mlx-lm", "versions": ">=0.32.0", "where": "plamo2.py:1"},
        verdicts={"ragged": Verdict.DIVERGED},
        schedules={"ragged": ("late",)},
    )
    registry = SimpleNamespace(
        engines={"mlx_lm": SimpleNamespace(library="mlx_lm")},
        families={("mlx_lm", "my-model"): SimpleNamespace(module="plamo2")},
    )
    return Setup(
        settings=SimpleNamespace(checkpoint="a folder"),
        registry=registry,
        selection=None,
        expectations=Expectations((entry,)),
    )


def result(*schedules):
    return make_result(
        CASE,
        Verdict.DIVERGED,
        evidence=tuple(make_finding(schedule=name) for name in schedules),
        schedules=tuple(ScheduleResult(name, Verdict.DIVERGED) for name in schedules),
    )


def test_it_is_known_of_the_checkpoint_too(setup):
    judged = setup.judged(result("late"))
    assert (judged.expected, judged.known, judged.family) == (True, "lost-state", "my-model")
    assert [finding.known for finding in judged.evidence] == ["lost-state"]


def test_what_is_new_beside_it_is_all_that_counts(setup):
    judged = setup.judged(result("late", "early"))
    assert not judged.expected
    assert [finding.known for finding in judged.evidence] == ["lost-state", ""]


def test_a_checkpoint_that_does_not_show_it_breaks_no_rule(setup):
    good = make_result(CASE)
    assert setup.judged(good) == good
