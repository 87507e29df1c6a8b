"""Every entry of the catalogue of faults is re-enacted under some engine."""

import functools
import re

from conformance.power.faults import registry_with_faults

# The entries are numbered within seven sources: three of pull requests (A to C), a fork (D), an
# engine with mixed steps (E), issue trackers (F), what nobody has reported, but the libraries' code
# would allow (G), and servers (S). Each has so many.
LAST = {"A": 11, "B": 22, "C": 7, "D": 9, "E": 7, "F": 15, "G": 11, "S": 145}
ENTRIES = {f"{source}{number}" for source, last in LAST.items() for number in range(1, last + 1)}
# At least so many faults in all.
FEWEST = 70


@functools.cache
def registry():
    return registry_with_faults()


def faults():
    return tuple(registry().faults.values())


def entry(fault):
    return fault.name.partition(".")[0]


def test_every_entry_has_a_fault_and_every_fault_an_entry():
    assert {entry(fault) for fault in faults()} == ENTRIES


def test_no_module_of_faults_is_left_out():
    assert registry().unavailable == ()


def test_each_fault_describes_itself():
    for fault in faults():
        assert re.fullmatch(r"[A-GS]\d+\.[a-z0-9-]+", fault.name), fault.key
        assert fault.source, fault.key
        assert fault.summary.endswith("."), fault.key
        assert set(fault.scenarios) <= set(registry().scenarios), fault.key


def test_there_are_enough_and_each_name_is_used_once_for_an_engine():
    assert len({fault.key for fault in faults()}) == len(faults()) >= FEWEST


def test_what_no_library_hosts_is_in_the_reference_engine():
    libraries = {entry(fault) for fault in faults() if not fault.engine.startswith("reference")}
    assert {"E1", "E2", "E3", "E4", "E5", "F10"} == ENTRIES - libraries
