"""A fault says where it can show, and is declared by what injects it."""

import contextlib
import sys
from functools import partial

import pytest

from conformance.core.faults.declaration import Fault, Hits, declared_in, fault


def needing(*needs):
    return Fault("a", "b", "c", "d", "engine", needs, (), lambda hits: contextlib.nullcontext())


TRAITS = {"cache:KVCache", "rope:RoPE (llama3)", "modality:text"}


@pytest.mark.parametrize(
    ("needs", "lacking"),
    [
        ((), ""),
        (("cache:KVCache",), ""),
        (("cache:Rot*|cache:KV*", "rope:RoPE*"), ""),
        (("cache:KVCache", "window"), "window"),
        (("modality:image|modality:video",), "modality:image|modality:video"),
    ],
)
def test_the_first_need_that_is_not_met_is_named(needs, lacking):
    assert needing(*needs).lacks(TRAITS) == lacking


def test_a_fault_that_names_a_schedule_can_show_in_no_other_of_its_scenario():
    def killed_by(*kills):
        return Fault("a", "b", "c", "d", "e", (), kills, lambda hits: contextlib.nullcontext())

    narrow, wide = killed_by("held/decoding", "ragged"), killed_by("held", "ragged")
    assert narrow.scenarios == wide.scenarios == ("held", "ragged")
    assert narrow.may_show("held", "decoding")
    assert not narrow.may_show("held", "computed")
    assert narrow.may_show("ragged", "any")
    assert wide.may_show("held", "computed")
    assert narrow.may_show("another", "any")
    assert not killed_by("held/decoding").may_show("another", "any")


def test_hits_are_counted_where_the_defect_took_effect():
    hits = Hits()
    for condition in (True, False, [1], [], 3):
        hits.hit_if(condition)
    hits.hit()
    assert hits.count == 4


def test_a_fault_is_made_of_the_function_that_injects_it():
    abacus = partial(fault, engine="abacus", fault_class="beads", kills=("ragged",))

    @abacus("A1.bead-lost", source="somewhere #1", kills=("held/decoding",), crash=True)
    def bead_lost(hits):
        """A bead is lost
        between two rows.

        How it gets lost.
        """
        hits.hit()
        return contextlib.nullcontext()

    assert bead_lost.key == "abacus/A1.bead-lost"
    assert bead_lost.summary == "A bead is lost between two rows."
    assert (bead_lost.fault_class, bead_lost.source) == ("beads", "somewhere #1")
    assert (bead_lost.kills, bead_lost.needs) == (("held/decoding",), ())
    assert (bead_lost.crash, bead_lost.priced, bead_lost.where) == (True, False, "")
    hits = Hits()
    with bead_lost.inject(hits):
        assert hits.count == 1


DECLARED = """
from conformance.core.faults.declaration import fault

def declare(name):
    def inject(hits):
        "Wrong."
    return fault(name, engine="abacus", fault_class="beads", source="nobody", kills=())(inject)

{name}_second = declare("{name}.second")
{name}_first = declare("{name}.first")
ELSE = declare
"""


def test_all_modules_of_a_package_are_searched_in_the_order_of_definition(tmp_path, monkeypatch):
    package = tmp_path / "planted_faults"
    package.mkdir()
    first = "from conformance.core.faults.declaration import Fault, declared_in"
    text = f"{first}\nFAULTS = declared_in(__name__, Fault)\n"
    (package / "__init__.py").write_text(text)
    (package / "tools.py").write_text("")
    for name in ("b", "a"):
        (package / f"{name}.py").write_text(DECLARED.format(name=name))
    monkeypatch.syspath_prepend(tmp_path)
    before = set(sys.modules)
    try:
        import planted_faults  # noqa: PLC0415

        found = [each.name for each in planted_faults.FAULTS]
        assert found == ["a.second", "a.first", "b.second", "b.first"]
        assert declared_in("planted_faults", Fault) == planted_faults.FAULTS
    finally:
        for name in set(sys.modules) - before:
            del sys.modules[name]
