"""What an item does when its time is up after its verdict is known."""

from types import SimpleNamespace

import pytest

from conformance.app.pytest_plugin.items import CaseItem


def diagnosed(message):
    """What comes of a result whose diagnosis fails with that message, and whether it taints."""

    def fails(*_):
        pytest.fail(message)

    tainted = []
    setup = SimpleNamespace(judge=SimpleNamespace(diagnosed=fails))
    item = SimpleNamespace(setup_=setup, case="case", _taint=lambda: tainted.append(1))
    return CaseItem._diagnosed(item, "result"), bool(tainted)


def test_a_diagnosis_that_takes_too_long_leaves_the_verdict_as_it_is():
    assert diagnosed("Timeout (>300.0s) from pytest-timeout.") == ("result", True)


def test_other_failures_of_a_diagnosis_are_not_hidden():
    with pytest.raises(pytest.fail.Exception, match="something else"):
        diagnosed("something else")
