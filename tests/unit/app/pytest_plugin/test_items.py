"""What an item does when its time is up after its verdict is known."""

from types import SimpleNamespace

import pytest

from conformance.app.pytest_plugin.items import CaseItem
from conformance.app.pytest_plugin.setup import Setup
from conformance.core.verdict import CaseId


def diagnosed(message):
    """What comes of a result whose diagnosis fails with that message, and whether it taints."""

    def fails(*_):
        pytest.fail(message)

    tainted = []
    setup = SimpleNamespace(judge=SimpleNamespace(diagnosed=fails))
    item = SimpleNamespace(setup_=setup, case="case", _taint=lambda: tainted.append(1))
    return CaseItem._diagnosed(item, "result"), bool(tainted)


@pytest.mark.parametrize(("scenario", "seconds"), [("ragged", 5), ("marathon", 20)])
def test_a_long_workload_may_take_longer_before_it_is_a_hang(scenario, seconds):
    setup = SimpleNamespace(settings=SimpleNamespace(timeout=5))
    assert Setup.timeout_of(setup, CaseId("mlx_lm", "llama", scenario, "float32", 0)) == seconds


def test_a_diagnosis_that_takes_too_long_leaves_the_verdict_as_it_is():
    assert diagnosed("Timeout (>300.0s) from pytest-timeout.") == ("result", True)


def test_other_failures_of_a_diagnosis_are_not_hidden():
    with pytest.raises(pytest.fail.Exception, match="something else"):
        diagnosed("something else")
