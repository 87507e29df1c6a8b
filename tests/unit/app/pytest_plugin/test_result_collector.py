"""What a run lacks of its engines is a problem of it; mends only where a defect has none."""

from types import SimpleNamespace

import pytest

from conformance.app.pytest_plugin.result_collector import not_played
from conformance.core.unavailable import Unavailable
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
    results = [SimpleNamespace(unmended=()), SimpleNamespace(unmended=unmended)]
    assert not_played(settings, registry, results) == said
