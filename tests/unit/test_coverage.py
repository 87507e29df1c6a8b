"""How a library's modules are accounted for."""

from types import SimpleNamespace

import pytest

from conformance.coverage import account
from conformance.family import Facts, Family
from conformance.library import Coverage
from conformance.registry import Registry


@pytest.fixture
def registry():
    def make(modules, excluded, families):
        library = SimpleNamespace(coverage=lambda: Coverage(modules, excluded))
        found = [
            Family(name, Facts(library=lib, module=module), {}) for lib, name, module in families
        ]
        return Registry(
            libraries={"toy": library},
            families={(f.facts.library, f.name): f for f in found},
            engines={},
            scenarios={},
            faults={},
            plugins=(),
        )

    return make


def test_a_module_is_covered_by_all_families_that_name_it(registry):
    found = account(
        registry(("llama",), {}, [("toy", "llama", ""), ("toy", "llama-tied", "llama")]), "toy"
    )
    assert found.covered == {"llama": ("llama", "llama-tied")}
    assert found.uncovered == ()
    assert found.problem == ""


def test_what_has_neither_family_nor_exclusion_is_uncovered_and_told(registry):
    found = account(registry(("b", "a", "helper"), {"helper": "no model"}, []), "toy")
    assert found.uncovered == ("a", "b")
    assert found.problem.startswith("toy: 2 model module(s) with neither a family nor")
    assert "a, b" in found.problem


def test_a_family_of_another_library_covers_nothing_here(registry):
    found = account(registry(("llama",), {}, [("other", "llama", "")]), "toy")
    assert found.uncovered == ("llama",)
