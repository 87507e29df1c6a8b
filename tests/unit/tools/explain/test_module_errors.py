"""Which module of a pass is blamed."""

import numpy as np
import pytest

from conformance.backend.module_hooks import ModuleCall, Pass
from conformance.core.trace import Trace
from conformance.tools.explain.activations import by_position
from conformance.tools.explain.alignment import Span
from conformance.tools.explain.module_errors import differing
from conformance.tools.explain.recording import Level, Recording

# In the order in which the calls end.
PATHS = ("layers.0.norm", "layers.0.attention", "layers.0", "layers.1.norm", "layers.1", "")
SPAN = Span(0, "a", 0, 1, 0)


def passed(**wrong):
    """A pass of one token; ``given`` and ``made`` are the paths that are given or make others."""
    calls = [
        ModuleCall(path, "Module", 0, number(path in wrong["given"]), number(path in wrong["made"]))
        for path in PATHS
    ]
    return Pass(np.array([[5]]), (), calls)


def number(wrong):
    """``[1, 1, 1]``."""
    return np.full((1, 1, 1), 2.0 if wrong else 1.0, np.float32)


def first(given, made):
    """The first that differs: its place, whether its layer does, whether it is its own fault."""
    single = by_position([passed(given=(), made=())], (5,))
    recording = Recording(
        Trace(None, "", ()), (), (), {}, {"a": (5,)}, {}, {"a": single}, Level({}, 1e-5)
    )
    found = next(differing(recording, passed(given=given, made=made), [SPAN]))
    return found.where.site, found.shows, found.own


REST = ("layers.1.norm", "layers.1", "")


@pytest.mark.parametrize(
    ("given", "made", "site"),
    [
        ((), PATHS, "layers.0.norm"),
        (("layers.0.attention",), PATHS[1:], "layers.0"),
        (("layers.1.norm",), REST, "layers.1"),
        (("layers.1.norm", "layers.1"), REST, ""),
    ],
)
def test_the_innermost_with_the_single_stream_s_input(given, made, site):
    assert first(given, made)[0] == f"module:{site}:Module"


def test_an_error_that_is_lost_within_its_layer_does_not_show():
    assert first((), ("layers.0.attention",)) == ("module:layers.0.attention:Module", False, True)
    assert first((), ("layers.0.attention", "layers.0"))[1:] == (True, True)


def test_who_was_given_something_else_is_not_wrong_by_itself():
    assert not first(("layers.0.attention",), PATHS[1:])[2]
