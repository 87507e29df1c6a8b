"""What a run lacks of its engines is a problem of it; mends only where a defect has none."""

from types import SimpleNamespace

import pytest

from conformance.app.pytest_plugin.options import SUITE_NODE
from conformance.app.pytest_plugin.result_collector import ResultCollector, not_played
from conformance.core.unavailable import Unavailable
from conformance.core.verdict import Finding, Verdict
from conformance.run.family_seconds import FamilySeconds
from conformance.run.registry import Registry

USUAL = frozenset({"mlx_lm"})
LEFT_OUT = (
    Unavailable("its faults", "ImportError: a", "mlx_lm", "conformance_faults", USUAL),
    Unavailable("its mends", "ImportError: b", "mlx_lm", "conformance_mends", USUAL),
    Unavailable("its engines", "ImportError: c", "far", "conformance_engines", frozenset({"far"})),
)
MENDS = "not all was played: plugin 'mlx_lm' is used without its mends: ImportError: b"
ENGINES = "not all was played: plugin 'far' is used without its engines: ImportError: c"


@pytest.mark.parametrize(
    ("engines", "unmended", "mends", "said"),
    [
        ((), (), True, ()),
        ((), ("defect",), True, (MENDS,)),
        ((), ("defect",), False, ()),
        (("f*",), ("defect",), True, (ENGINES,)),
        (("*",), (), True, (ENGINES,)),
    ],
)
def test_what_is_asked_and_left_out_is_a_problem(engines, unmended, mends, said):
    registry = Registry({}, {}, {}, {}, {}, (), unavailable=LEFT_OUT)
    settings = SimpleNamespace(engines=engines, mends=mends)
    results = [SimpleNamespace(unmended=u, evidence=()) for u in ((), unmended)]
    assert not_played(settings, registry, results) == said


def test_a_name_that_a_release_lacks_is_a_problem_once():
    finding = Finding(
        Verdict.UNSUPPORTED, "failure", "raised: unsupported here: mlx_vlm.apc._x [a]"
    )
    results = [SimpleNamespace(unmended=(), evidence=(finding,))] * 2
    registry = Registry({}, {}, {}, {}, {}, ())
    said = not_played(SimpleNamespace(engines=(), mends=True), registry, results)
    assert said == ("not all was played: unsupported here: mlx_vlm.apc._x",)


def test_a_case_has_the_recorded_seconds_of_its_family_and_scenario():
    seconds = FamilySeconds({"slow": {"ragged": 5.0, "wide": 1.0}, "fast": {"wide": 3.0}})
    setup = SimpleNamespace(
        settings=SimpleNamespace(keep=False, rerun_options=()),
        seconds=seconds,
        group_of=lambda case: case.family,
    )
    collector = ResultCollector(setup, None, None, None)
    cases = ["e/slow/ragged/float32/0", "e/slow/wide/float32/0", "e/fast/wide/float32/0"]
    collector.pytest_xdist_node_collection_finished([f"{SUITE_NODE}::{case}" for case in cases])
    assert collector.recorded_seconds() == dict(zip(cases, (5.0, 1.0, 3.0), strict=True))
