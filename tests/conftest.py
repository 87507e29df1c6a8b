"""What holds for all tests."""

import gc
import os
import signal

import pytest
import shared_oracles
from hypothesis import settings

from conformance.backend.random_state import can_draw, drawing_kept

# How long an example takes depends on what else the machine does.
settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")

# What is made while tests are collected stays: nothing of it is garbage to look for.
gc.disable()


def pytest_collection_finish():
    gc.enable()


# What is started in the background by a shell ignores Ctrl-C, and all that it starts does.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def _variables():
    """Those that change what later tests do; libraries set others once, when they are imported."""
    return {n: v for n, v in os.environ.items() if n.startswith(("MLX_", "CONFORMANCE_", "XDG_"))}


@pytest.fixture(autouse=True, scope="session")
def _oracles(tmp_path_factory):
    """One folder for all workers."""
    base = tmp_path_factory.getbasetemp()
    base = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    os.environ[shared_oracles.PLACE] = str(base / "oracles")
    (base / "oracles").mkdir(exist_ok=True)


@pytest.fixture(autouse=True)
def nothing_left_behind():
    """A test that would make later ones of its process fail is itself the one that fails."""
    before = _variables()
    with drawing_kept():
        yield
        drawing = can_draw()
    after = _variables()
    os.environ.update(before)
    for name in after.keys() - before.keys():
        del os.environ[name]
    assert drawing, "this test leaves random numbers that cannot be drawn"
    assert after == before, "this test leaves environment variables behind"
