"""Properties of mlx-lm's own functions: what is known of them, and that they detect a defect."""

import pytest
from mlx_lm.models import cache

from conformance.power.properties.mlx_lm import properties

OWN = {one.name: one for one in properties() if one.name.startswith(("kept", "caches"))}
# For each property that holds what is broken, where, and by what.
BROKEN = {
    "caches: room": (cache.BatchKVCache, "step", 255),
}


def test_a_prefix_of_one_token_is_not_found():
    assert "those of 0 are found" in OWN["kept: a prefix of one token"].problem()


@pytest.mark.parametrize("name", BROKEN)
def test_a_property_holds_and_detects_what_is_broken(monkeypatch, name):
    assert OWN[name].problem() == ""
    monkeypatch.setattr(*BROKEN[name], raising=False)
    assert OWN[name].problem() != ""


def test_each_is_tried_above():
    assert set(OWN) == {*BROKEN, "kept: a prefix of one token"}
