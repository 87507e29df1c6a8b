"""Faults of this project, beside those that plugins give by their hook."""

import dataclasses
from types import SimpleNamespace

import pytest

from conformance import hookimpl
from conformance.core.errors import PluginError
from conformance.core.faults import Fault
from conformance.power import faults
from conformance.power.faults import registry_with_faults, with_faults
from conformance.run.registry import build_registry


def fault(name):
    """A third party's fault, under an engine of this project."""
    return Fault(name, "masks", "issue 7", "wrong", "mlx_lm", (), ("ragged",), lambda hits: hits)


def plugin(*given):
    return SimpleNamespace(__name__="guest", conformance_faults=hookimpl(lambda: list(given)))


@pytest.fixture(scope="module")
def registry():
    return build_registry(engines=("mlx_lm",))


def test_no_registry_has_them_unless_it_is_asked_for(registry):
    assert not registry.faults
    assert "mlx_lm/B6.mask-without-padding" in with_faults(registry).faults


def test_those_of_plugins_that_are_left_out_are_left_out(registry):
    engines = {one.engine for one in registry_with_faults().faults.values()}
    assert engines > {"mlx_lm", "mlx_vlm", "mlx_lm_server", "mlx_vlm_server"}
    few = {one.engine for one in with_faults(registry).faults.values()}
    assert few == {"mlx_lm", "reference_mixed"}


def test_a_plugin_s_faults_come_by_its_hook():
    found = registry_with_faults([plugin(fault("A1.own"))], engines=("mlx_lm",)).faults
    assert list(found)[-1] == "mlx_lm/A1.own"


def test_one_fault_of_a_name():
    twice = plugin(fault("B6.mask-without-padding"))
    with pytest.raises(PluginError, match=r"'mlx_lm/B6\.mask-without-padding' .* exists already"):
        registry_with_faults([twice], engines=("mlx_lm",))


def test_what_cannot_be_imported_is_named_and_leaves_the_rest(registry, monkeypatch):
    whole = dataclasses.replace(registry, plugins=build_registry().plugins)
    monkeypatch.setitem(faults._OWN, "mlx_lm", "no_such_package")
    found = with_faults(whole)
    (lacking,) = found.unavailable
    assert (lacking.plugin, lacking.part) == ("mlx_lm", "its faults")
    assert "mlx_lm" in lacking.engines
    assert "no_such_package" in lacking.why
    assert "mlx_vlm" in {one.engine for one in found.faults.values()}
