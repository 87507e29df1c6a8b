"""A batch's caches in other dtypes than the single stream's."""

import pytest
from miniatures.plays import Script

from conformance.checks.dtypes import check_dtypes
from conformance.core.trace import CachedLayer
from conformance.core.verdict import Verdict

STATES = (("bfloat16", "float32"), ("bfloat16",))


def findings(layers, wanted=STATES, at=2):
    script = Script()
    script.free.moments[at].layers = tuple(CachedLayer(8, False, dtypes) for dtypes in layers)
    return check_dtypes(script.play(dtypes=wanted))


def test_a_state_that_was_cast_down():
    (found,) = findings([("bfloat16",), ("bfloat16",)])
    assert (found.verdict, found.mode, found.got) == (Verdict.DRIFT, "free", "bfloat16")
    assert found.what == "the cache of layer 0 holds bfloat16 after step 2"
    assert found.expected == "bfloat16 and float32, as in the single stream"


def test_keys_that_were_cast_up():
    (found,) = findings([STATES[0], ("float32",)])
    assert found.what == "the cache of layer 1 holds float32 after step 2"


@pytest.mark.parametrize(
    ("layers", "wanted"),
    [
        (STATES, STATES),
        ([STATES[0], ()], STATES),  # a layer that holds nothing yet
        ([STATES[0], ("float32",)], (STATES[0], ())),
        ([("float32",)] * 2, ()),  # not known of the single stream
        ([("float32",)], STATES),  # not known of which layers
    ],
)
def test_what_is_the_same_or_not_known(layers, wanted):
    assert findings(layers, wanted) == []
