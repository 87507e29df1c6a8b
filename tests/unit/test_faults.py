"""The path under which plugins find the decorator of faults."""

from conformance import faults
from conformance.core import faults as base


def test_a_plugin_gets_the_base_itself():
    assert all(getattr(faults, name) is getattr(base, name) for name in faults.__all__)
