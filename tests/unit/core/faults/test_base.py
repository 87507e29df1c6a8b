"""A fault says where it can show, and what it replaces is put back."""

import contextlib

import pytest

from conformance.core.faults import Fault, replaced


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
def test_the_first_need_that_is_not_met_is_told(needs, lacking):
    assert needing(*needs).lacks(TRAITS) == lacking


class Parent:
    def walk(self):
        return "walks"


class Child(Parent):
    pass


def test_an_own_attribute_is_put_back():
    walk = Parent.walk
    with replaced(Parent, "walk", lambda self: "limps"):
        assert Child().walk() == "limps"
    assert Parent.walk is walk


def test_what_was_inherited_is_inherited_again():
    with replaced(Child, "walk", lambda self: "limps"):
        assert Parent().walk() == "walks"
        assert Child().walk() == "limps"
    assert "walk" not in vars(Child)
    assert Child().walk() == "walks"


def test_it_is_put_back_after_an_error_too():
    with contextlib.suppress(ZeroDivisionError), replaced(Parent, "walk", None):
        1 / 0  # noqa: B018
    assert Parent().walk() == "walks"


def test_a_fault_that_names_a_schedule_can_show_in_no_other_of_its_scenario():
    def fault(*kills):
        return Fault("a", "b", "c", "d", "e", (), kills, lambda hits: contextlib.nullcontext())

    narrow, wide = fault("held/decoding", "ragged"), fault("held", "ragged")
    assert narrow.scenarios == wide.scenarios == ("held", "ragged")
    assert narrow.may_show("held", "decoding")
    assert not narrow.may_show("held", "computed")
    assert narrow.may_show("ragged", "any")
    assert wide.may_show("held", "computed")
