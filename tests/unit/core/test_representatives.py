"""The tables of families that stand for others name families that exist."""

import msgspec
import pytest

from conformance.core.family import Facts, Family
from conformance.core.representatives import chosen_of, representatives
from conformance.run.registry import build_registry

SCENARIOS = {"served_by_first", "half_scenarios"}
PARTS = representatives().served_parts
OTHERS = {"served_parts", *SCENARIOS}
TABLES = PARTS | {
    name: getattr(representatives(), name)
    for name in representatives().__struct_fields__
    if name not in OTHERS
}


@pytest.mark.parametrize("name", TABLES)
def test_the_families_of_a_table_are_there(name):
    table = TABLES[name]
    assert table
    named = {(library, name) for library, names in table.items() for name in names}
    assert named <= build_registry().families.keys()


@pytest.mark.parametrize("name", sorted(SCENARIOS))
def test_the_scenarios_of_a_table_are_there(name):
    named = {one for names in getattr(representatives(), name).values() for one in names}
    assert named | PARTS.keys() <= build_registry().scenarios.keys()


def test_of_a_library_without_a_table_each_family_stands_for_itself():
    (own,) = chosen_of({"other": ("a",)}, Family("b", Facts(library="toy"), {}))
    assert own == "b"


def test_a_table_that_nobody_reads_is_an_error():
    with pytest.raises(msgspec.ValidationError, match="unknown field"):
        msgspec.toml.decode("[unread]", type=type(representatives()))
