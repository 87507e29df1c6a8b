"""How a library's modules are accounted for."""

from types import SimpleNamespace

import pytest
import results_by_hand

from conformance.core.errors import ModelError
from conformance.core.family import Facts, Family
from conformance.core.inventory import About
from conformance.core.library import Coverage
from conformance.run.coverage import account, take_inventory
from conformance.run.registry import Registry


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


def test_what_has_neither_family_nor_exclusion_is_uncovered_and_reported(registry):
    found = account(registry(("b", "a", "helper"), {"helper": "no model"}, []), "toy")
    assert found.uncovered == ("a", "b")
    assert found.problem.startswith("toy: 2 model module(s) with neither a family nor")
    assert "a, b" in found.problem


class Engine:
    name, library, capabilities = "toy", "lib", frozenset()
    equipment = ()


@pytest.fixture
def full_registry():
    def make(outline):
        library = SimpleNamespace(outline=outline, coverage=lambda: Coverage(("a", "b"), {}))
        families = [Family(n, Facts(library="lib", module="a"), {}) for n in ("one", "two")]
        scenarios = {
            name: SimpleNamespace(name=name, lacking=lambda capabilities: "", applies=applies)
            for name, applies in (
                ("repeat", lambda family: ""),
                ("window", lambda family: "no window" if family.name == "two" else ""),
            )
        }
        return Registry(
            libraries={"lib": library},
            families={("lib", f.name): f for f in families},
            engines={"toy": Engine},
            scenarios=scenarios,
            faults={},
            plugins=(),
        )

    return make


def results(*families, engine="toy"):
    return [results_by_hand.make_result(f"{engine}/{f}/repeat/float32/0") for f in families]


def test_a_family_is_listed_with_its_caches(full_registry, monkeypatch):
    monkeypatch.setattr("conformance.run.registry.equipped", lambda family, engine: family)
    outline = SimpleNamespace(kinds={"caches": frozenset({"B", "A"})})
    found = take_inventory(full_registry(lambda family: outline), results("one", "gone"))
    assert found.about("toy", "one") == About("lib", "a", ("text",), ("A", "B"))
    assert found.about("toy", "gone") == About()
    assert found.scenarios == ("repeat", "window")


def test_all_that_applies_is_counted_not_only_what_was_run(full_registry, monkeypatch):
    monkeypatch.setattr("conformance.run.registry.equipped", lambda family, engine: family)
    found = take_inventory(full_registry(lambda family: SimpleNamespace(kinds={})), results("one"))
    assert found.applicable == {"toy": {"one": ("repeat", "window"), "two": ("repeat",)}}
    assert [a.uncovered for a in found.accounts] == [("b",)]


def test_a_model_that_cannot_be_outlined_has_unknown_caches(full_registry, monkeypatch):
    monkeypatch.setattr("conformance.run.registry.equipped", lambda family, engine: family)

    def outline(family):
        raise ModelError("cannot be built")

    assert take_inventory(full_registry(outline), results("one")).about("toy", "one").caches == (
        "unknown",
    )


def test_results_of_an_engine_that_is_not_installed_are_taken(full_registry):
    found = take_inventory(full_registry(None), results("one", engine="other"))
    assert (found.applicable, found.accounts) == ({}, ())
