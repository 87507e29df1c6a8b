"""Properties of each library: this project's own, and those of its plugin."""

import dataclasses

from conformance.core.properties import Property
from conformance.plugins.mlx_lm.library import MlxLm
from conformance.power.properties import properties_of
from conformance.run.registry import build_registry

GIVEN = Property("given", "mlx_lm/x.py", ("f",), list)


class Giving(MlxLm):
    """mlx-lm, of a plugin that has a property of its own."""

    def properties(self):
        return (GIVEN,)


def test_a_library_s_own_come_beside_those_of_this_project():
    registry = build_registry(engines=("mlx_lm",))
    found = properties_of(dataclasses.replace(registry, libraries={"mlx_lm": Giving()}))
    names = [one.name for one in found["mlx_lm"]]
    assert names[-1] == "given"
    assert any(name.startswith("samplers") for name in names)


def test_a_library_of_somebody_else_has_what_its_plugin_gives():
    registry = dataclasses.replace(build_registry(), libraries={"other": Giving()})
    assert properties_of(registry) == {"other": (GIVEN,)}
