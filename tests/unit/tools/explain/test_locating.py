"""The first place that differs, on the installed library with a defect put in, and without one."""

import numpy as np
import pytest

from conformance.backend.module_hooks import ModuleCall, Pass
from conformance.core.faults import Hits
from conformance.core.trace import Trace
from conformance.core.verdict import CaseId
from conformance.power.faults import registry_with_faults
from conformance.report.explanation import Needed
from conformance.run.judging.judge import brief_for
from conformance.run.session import Session
from conformance.tools.explain.activations import by_position
from conformance.tools.explain.alignment import Span
from conformance.tools.explain.catalogue import sited
from conformance.tools.explain.explaining import _apart, begin, explain
from conformance.tools.explain.locating import differing, locate
from conformance.tools.explain.recording import Level, Recording, record

CASE = CaseId("mlx_lm", "llama", "ragged", "float32", 0)


@pytest.fixture(scope="module")
def session():
    return Session(registry_with_faults())


def found_with(session, name, case=CASE):
    """Where the case begins to fail with that defect in it."""
    fault = session.registry.faults[f"mlx_lm/{name}"]
    baseline = session.run(case)
    found = begin(session, case, around=lambda _: fault.inject(Hits()), baseline=baseline)
    return fault, found


def test_a_right_run_differs_nowhere(session):
    subject = session.subject(CASE)
    engine = session.registry.engines["mlx_lm"]
    schedule = session.registry.scenarios["ragged"].make(brief_for(subject, engine, 0))[0]
    located = locate(record(subject, engine, schedule, "float32"))
    assert (located.where, located.entry, located.layers) == (None, None, ())


@pytest.mark.parametrize(
    ("name", "place"),
    [
        ("B4.offset-of-row-0", "module:model.layers.0.self_attn.rope:Llama3RoPE"),
        ("B6.mask-without-padding", "module:model.layers.0.self_attn:Attention"),
        ("C1.padding-subtracted-twice", "cache:0:BatchKVCache:offset"),
        ("D1.fill-of-the-wrong-sign", "module:model.layers.0.self_attn:Attention"),
    ],
)
def test_the_place_of_a_defect(session, name, place):
    fault, found = found_with(session, name)
    assert found.where.site == place
    assert sited(fault, found.where)
    assert fault.fault_class in [relative.fault_class for relative in found.relatives]


def test_a_defect_of_the_engines_lists_is_not_looked_for_in_the_model(session):
    fault, found = found_with(session, "B1.first-sampled-token-lost", case_of("batch_of_one"))
    assert found.where.site.startswith("output:")
    assert found.entry is None
    assert sited(fault, found.where)


def test_the_whole_explanation(session):
    fault = session.registry.faults["mlx_lm/B6.mask-without-padding"]
    found = explain(
        session,
        CASE,
        around=lambda _: fault.inject(Hits()),
        fault=fault.key,
        baseline=session.run(CASE),
    )
    assert found.needed == ("batch", "padding")
    assert {i.name: i.needed for i in found.ingredients}["neighbours' content"] is Needed.NO
    assert found.suffices is True
    assert found.opinion.startswith("engine or cache")
    assert [layer.path for layer in found.layers] == [f"model.layers.{n}" for n in range(4)]
    assert all(layer.error > 1e3 * layer.noise for layer in found.layers)
    assert max(step.difference / step.noise for step in found.steps) > 1e3


def case_of(scenario):
    """The case with another scenario."""
    return CaseId("mlx_lm", "llama", scenario, "float32", 0)


def test_a_token_that_is_masked_on_both_sides_is_no_difference():
    masked, other = np.array([[-np.inf, -1.0]]), np.array([[-np.inf, -1.5]])
    assert _apart(masked, masked).tolist() == [0.0]
    assert _apart(masked, other).tolist() == [0.5]
    assert _apart(masked, np.array([[-2.0, -1.0]])).tolist() == [np.inf]


def test_a_request_that_is_wrong_for_another_reason_is_not_compared(session):
    _, found = found_with(session, "B6.mask-without-padding")
    wrong = {request.request_id for request in found.failing.schedule.requests}
    assert locate(found.recording, aside=wrong).where is None
    others = wrong - {found.where.request_id}
    assert locate(found.recording, aside=others).where.request_id == found.where.request_id


# Which module of a pass is blamed -----------------------------------------------------------------

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
