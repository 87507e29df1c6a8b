"""What results are held against."""

from types import SimpleNamespace

import pytest
import results_by_hand

from conformance.errors import ModelError
from conformance.family import Facts, Family
from conformance.html.inventory import About, take_inventory
from conformance.library import Coverage
from conformance.registry import Registry


class Engine:
    name, library, capabilities = "toy", "lib", frozenset()
    equipment = ()


@pytest.fixture
def registry():
    def make(outline):
        library = SimpleNamespace(outline=outline, coverage=lambda: Coverage(("a", "b"), {}))
        families = [Family(n, Facts(library="lib", module="a"), {}) for n in ("one", "two")]
        scenarios = {
            name: SimpleNamespace(name=name, needs=frozenset(), applies=applies)
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


def test_a_family_is_told_with_its_caches(registry, monkeypatch):
    monkeypatch.setattr("conformance.registry.equipped", lambda family, engine: family)
    outline = SimpleNamespace(kinds={"caches": frozenset({"B", "A"})})
    found = take_inventory(registry(lambda family: outline), results("one", "gone"))
    assert found.about("toy", "one") == About("lib", "a", ("text",), ("A", "B"))
    assert found.about("toy", "gone") == About()
    assert found.scenarios == ("repeat", "window")


def test_all_that_applies_is_counted_not_only_what_was_run(registry, monkeypatch):
    monkeypatch.setattr("conformance.registry.equipped", lambda family, engine: family)
    found = take_inventory(registry(lambda family: SimpleNamespace(kinds={})), results("one"))
    assert found.applicable == {"toy": {"one": ("repeat", "window"), "two": ("repeat",)}}
    assert [a.uncovered for a in found.accounts] == [("b",)]


def test_a_model_that_cannot_be_outlined_has_unknown_caches(registry, monkeypatch):
    monkeypatch.setattr("conformance.registry.equipped", lambda family, engine: family)

    def outline(family):
        raise ModelError("cannot be built")

    assert take_inventory(registry(outline), results("one")).about("toy", "one").caches == (
        "unknown",
    )


def test_results_of_an_engine_that_is_not_installed_are_taken(registry):
    found = take_inventory(registry(None), results("one", engine="other"))
    assert (found.applicable, found.accounts) == ({}, ())
