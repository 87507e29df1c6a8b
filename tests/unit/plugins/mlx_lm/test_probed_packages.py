"""A package that a module only looks for may be missing; what is installed is left alone."""

import ast
import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

from conformance.core.errors import Unsupported
from conformance.core.family import load_family
from conformance.plugins.mlx_lm import inventory, probed_packages
from conformance.plugins.mlx_lm.loading import load


@pytest.fixture
def unloaded(monkeypatch):
    """As in a process that has not met the family."""
    monkeypatch.delitem(sys.modules, "mlx_lm.models.olmo", raising=False)


def olmo():
    return load_family(inventory.FAMILIES / "olmo.json")


def test_the_family_is_loaded_and_the_package_is_missing_afterwards(unloaded):
    assert load(olmo()).model.model_type == "olmo"
    assert "hf_olmo" not in sys.modules


def test_without_it_the_module_ends_the_process(unloaded, monkeypatch):
    monkeypatch.setattr(probed_packages, "_LOOKED_FOR", {})
    with pytest.raises(Unsupported, match="install ai2-olmo"):
        load(olmo())


def test_a_package_that_is_installed_is_left_alone(unloaded, monkeypatch):
    own = ModuleType("hf_olmo")
    own.__spec__ = importlib.util.spec_from_loader("hf_olmo", None)
    monkeypatch.setitem(sys.modules, "hf_olmo", own)
    load(olmo())
    assert sys.modules["hf_olmo"] is own


def test_the_module_uses_nothing_of_the_package():
    load(olmo())
    source = Path(sys.modules["mlx_lm.models.olmo"].__file__).read_text(encoding="utf-8")
    names = [node.id for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Name)]
    assert "hf_olmo" not in names
