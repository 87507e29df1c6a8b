"""What is put in is known to engines with processes of their own."""

import pytest

from conformance.core.faults.active import active, noted
from conformance.core.faults.declaration import Hits
from conformance.core.faults.patching import replace


class Library:
    """Something to break."""

    answer = 42


def one_less(hits: Hits):
    """The answer is one less."""
    return replace(Library, "answer", 41)


def test_an_injection_is_named_while_it_is_in():
    hits = Hits()
    with noted(one_less)(hits):
        assert active() == [(f"{__name__}:one_less", hits)]
        assert active()[0][1] is hits
        assert Library.answer == 41
    assert active() == []
    assert Library.answer == 42


def test_it_is_taken_out_after_an_exception():
    with pytest.raises(ValueError, match="planted"), noted(one_less)(Hits()):
        raise ValueError("planted")
    assert active() == []
