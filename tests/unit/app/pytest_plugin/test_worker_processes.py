"""How much memory the processes of a run may take, by what is run."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from conformance.app.pytest_plugin.worker_processes import _limit
from conformance.core import memory_limit
from conformance.tools.checkpoints.given import Given

GB = 10**9


@pytest.fixture(autouse=True)
def machine(monkeypatch):
    monkeypatch.setattr(memory_limit, "memory_of_machine", lambda: 100 * GB)


def limit(*, memory=None, checkpoint=None, workers=4, families="abcdefgh"):
    settings = SimpleNamespace(memory=memory, checkpoint=checkpoint)
    setup = SimpleNamespace(settings=settings, cases=tuple(families), group_of=str)
    return _limit(setup, workers)


@pytest.mark.parametrize(
    ("given", "gigabytes"),
    [
        ({"memory": 3.5}, 3.5),
        ({"memory": 0.0}, 0),
        ({}, 20),
        ({"families": "ab"}, 40),
        ({"workers": 0}, 80),
        ({"checkpoint": Given(Path("x")), "families": "a"}, 95),
        ({"checkpoint": Given(Path("x"), force=True)}, 0),
        ({"checkpoint": Given(Path("x"), force=True), "memory": 7}, 7),
    ],
)
def test_an_option_comes_first_and_then_a_fair_share(given, gigabytes):
    assert limit(**given) == pytest.approx(gigabytes * GB)
