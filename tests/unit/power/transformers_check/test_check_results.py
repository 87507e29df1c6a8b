"""Results as data, and which of them are as known."""

import msgspec
import pytest

from conformance.core.errors import ResultError
from conformance.power.transformers_check.check_results import (
    Explained,
    Reading,
    Result,
    State,
    decode,
    encode,
    totals,
)

GOOD, BAD = Reading(1.0, 1e-5, 1e-5), Reading(400.0, 4e-3, 1e-5, 0)
CAUSE = (Explained("mlx_lm", "mlx_lm/models/x.py:1", "wrong"),)


def result(state=State.AGREES, **more):
    return Result("mlx_lm", "llama", "llama", state, **more)


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (result(), True),
        (result(causes=CAUSE, proof=GOOD), False),  # the cause no longer shows
        (result(State.DISAGREES), False),
        (result(State.DISAGREES, causes=CAUSE), False),
        (result(State.DISAGREES, causes=CAUSE, proof=BAD), False),
        (result(State.DISAGREES, causes=CAUSE, proof=GOOD), True),
        (result(State.UNLOADABLE), False),
        (result(State.UNLOADABLE, causes=CAUSE, proof=GOOD), True),
        (result(State.UNBUILDABLE), False),
        (result(State.INSENSITIVE), False),
        (result(State.CRASHED), False),
        (result(State.ABSENT), True),
        (result(State.MISSING), True),
    ],
)
def test_what_is_as_known(found, expected):
    assert found.expected is expected


def test_only_what_agrees_is_verified():
    assert [state for state in State if result(state).verified] == [State.AGREES]


def test_a_defect_of_the_other_side_alone_leaves_the_library_verified():
    theirs = (Explained("transformers", "transformers/x.py:1", "wrong"),)
    assert result(State.DISAGREES, causes=theirs, proof=GOOD).verified
    assert not result(State.DISAGREES, causes=theirs, proof=BAD).verified
    assert not result(State.DISAGREES, causes=theirs).verified
    assert not result(State.DISAGREES, causes=(*theirs, *CAUSE), proof=GOOD).verified


def test_a_result_survives_its_line():
    found = result(State.DISAGREES, reading=BAD, causes=CAUSE, tokens=(1, 2), both={"a": 1})
    assert decode(encode(found), where="x") == found


@pytest.mark.parametrize("line", ["", "{}", '{"library": 1}', "[1"])
def test_a_malformed_line_is_reported_with_its_place(line):
    with pytest.raises(ResultError, match=r"r\.jsonl, line 3"):
        decode(line, where="r.jsonl, line 3")


def test_totals_count_each_state():
    found = [result(), result(), result(State.CRASHED)]
    assert totals(found) == "2 agrees, 1 the process crashed; 2 verified"
    assert msgspec.json.decode(encode(found[2]))["state"] == "the process crashed"
