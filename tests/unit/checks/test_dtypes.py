"""A batch's caches in other dtypes than the single stream's."""

import msgspec
import pytest
from miniatures.plays import Script

from conformance.checks.dtypes import check_dtypes
from conformance.core.schedule import Stage
from conformance.core.trace import CachedLayer, Claim
from conformance.core.verdict import Verdict

STATES = (("bfloat16", "float32"), ("bfloat16",))


def findings(layers, wanted=STATES, at=2):
    script = Script()
    script.free.moments[at].layers = tuple(CachedLayer(8, False, dtypes) for dtypes in layers)
    if isinstance(wanted, tuple):
        wanted = {name: wanted for name in "abc" if wanted}
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


# Of prompts with an image, as b's is here; c leaves after step 2, b ends in step 3.
MIXED = {"a": (("bfloat16",),), "b": (("float32",),), "c": (("bfloat16",),)}


@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
@pytest.mark.parametrize("at", [1, 4])
def test_joined_rows_have_the_dtype_of_one_of_them(dtype, at):
    """Also of one that has left."""
    assert findings([(dtype,)], MIXED, at=at) == []


def test_a_dtype_that_no_row_has_alone():
    (found,) = findings([("float16",)], MIXED)
    assert found.expected == "bfloat16 or float32, as in the single stream"


def test_rows_of_an_earlier_batch_do_not_matter():
    script = Script()
    script.schedule = msgspec.structs.replace(script.schedule, removals=())
    for moment in script.free.moments[2:]:
        moment.stages = {"a": Stage.DECODE}
        moment.events = [event for event in moment.events if event.request_id == "a"]
    for moment in script.free.moments[:2]:
        moment.stages = {"b": Stage.DECODE}
        moment.events = [event for event in moment.events if event.request_id == "b"]
    script.free.moments[3].layers = (CachedLayer(8, False, ("float32",)),)
    (found,) = check_dtypes(script.play(dtypes=MIXED))
    assert found.expected == "bfloat16, as in the single stream"


def processed(given, wanted="bfloat16", dtype="bfloat16"):
    script = Script()
    script.dtype = dtype
    claims = tuple(Claim("logits", one, one, True, dtype=one) for one in given)
    script.free.moments[3].claims = claims
    return check_dtypes(script.play(logits_dtype=lambda: wanted))


def test_processors_that_are_given_another_dtype_than_alone():
    (found,) = processed(["bfloat16", "float32"])
    assert (found.verdict, found.mode, found.got) == (Verdict.DRIFT, "free", "float32")
    assert found.expected == "bfloat16"
    assert processed(["float32"], wanted="float32") == []
    assert processed(["float32"], wanted="") == [], "the library does not say"
    assert processed(["bfloat16"], wanted="float32", dtype="float32") == [], "seen by its bits"
