"""A foreign run as a trace: stages, ends, and moments at which things came and went."""

import math

import numpy as np
import pytest

from conformance.core.errors import VectorsError
from conformance.core.schedule import Stage
from conformance.core.trace import FinishReason, Mode
from conformance.tools.vectors.conversion import row, row_pair, trace_of
from conformance.tools.vectors.parsing import read_trace
from conformance.tools.vectors.reading import Vectors


@pytest.fixture
def convert(write_trace, vectors):
    def converted(lines):
        (run,) = read_trace(write_trace(lines))
        schedule = Vectors(vectors).schedule("toy", "ragged", run.header.schedule).schedule
        return trace_of(run, schedule, {})

    return converted


def test_tokens_ends_and_rows_are_kept(convert, plain):
    trace = convert(plain)
    assert trace.mode is Mode.FREE
    assert trace.stream("a").tokens == (5, 6, 7)
    assert trace.stream("b").finish_reason is FinishReason.LENGTH
    assert trace.steps[1].rows == {"b": 1}
    assert trace.missed == ()


def test_stages_follow_the_records(convert, moving):
    trace = convert(moving)
    assert trace.steps[0].stages == {"a": Stage.QUEUED, "b": Stage.QUEUED}
    assert trace.steps[2].stages == {"a": Stage.DECODE, "b": Stage.REMOVED}
    assert trace.steps[-1].stages == {
        "a": Stage.FINISHED,
        "b": Stage.REMOVED,
        "c": Stage.FINISHED,
    }
    assert trace.missed == ()
    assert trace.cache_bytes_at_end == 0


def test_an_error_is_the_failure(convert, plain):
    error = {"record": "error", "type": "ValueError", "message": "no", "where": "x.swift:3"}
    trace = convert([*plain[:2], error])
    assert str(trace.failure) == "ValueError: no [x.swift:3, in ?]"


def test_what_never_came_is_missed(convert, moving):
    lines = [one for one in moving if one["record"] not in ("arrived", "removed")]
    lines = [one for one in lines if one.get("request_id") != "c"]
    assert convert(lines).missed == (
        "arrival of c (when a is in decode with 2 done)",
        "removal of b (when b is in decode with 1 done)",
    )


def test_after_an_error_nothing_is_missed(convert, moving):
    error = {"record": "error", "type": "ValueError", "message": "no"}
    assert convert([*moving[:2], error]).missed == ()


@pytest.mark.parametrize("at", [2, 7])
def test_what_came_too_early_or_too_late_is_missed(convert, moving, at):
    arrived = moving.pop(5)
    moving.insert(at, arrived)
    (missed,) = convert(moving).missed
    assert missed == ("arrival of c (when a is in decode with 2 done); it came at another moment")


def test_a_token_before_the_arrival(convert, moving):
    del moving[5]
    with pytest.raises(VectorsError, match=r"line 8: a token of 'c' before its arrival"):
        convert(moving)


@pytest.mark.parametrize("record", ["arrived", "removed", "finish"])
def test_an_unknown_request(convert, plain, record):
    ids = {"request_id": "z", "reason": "length"} if record == "finish" else {"request_ids": ["z"]}
    plain.insert(1, {"record": record, **ids})
    with pytest.raises(
        VectorsError, match=r"line 2: schedule 'plain' has no request 'z'; it has a, b$"
    ):
        convert(plain)


def test_a_removal_that_is_not_in_the_schedule(convert, plain):
    plain.insert(1, {"record": "removed", "request_ids": ["a"]})
    with pytest.raises(VectorsError, match=r"line 2: schedule 'plain' does not remove 'a'"):
        convert(plain)


def test_arrivals_that_wait_for_nothing_may_have_a_record(convert, plain):
    plain.insert(1, {"record": "arrived", "request_ids": ["a", "b"]})
    assert convert(plain).missed == ()


WANT = [(1, -0.5), (2, -1.5), (3, -2.5)]


def apart(got):
    """Largest difference of the two tables; NaN counts."""
    theirs, mine = row_pair(WANT, got, 6)
    with np.errstate(invalid="ignore"):
        delta = np.abs(mine - theirs)
    return float(np.where(theirs == mine, 0.0, delta).max())


def test_a_row_holds_what_is_shown():
    assert row([(1, -0.5), (3, None)], 4).tolist()[:2] == [-math.inf, -0.5]
    assert math.isnan(row([(3, None)], 4)[3])


@pytest.mark.parametrize(
    ("got", "most"),
    [
        (WANT, 0),
        (WANT[:1], 0),  # fewer tokens
        ([*WANT, (4, -3.5), (5, -4.5)], 0),  # more tokens
        *(([(i, value - 0.25 * (i == token)) for i, value in WANT], 0.25) for token in (1, 2, 3)),
        # At most as likely as the least that is shown, and the golden says it is likelier.
        ([(1, -0.5), (3, -2.5)], 1.0),
        # The golden does not show it, so it is at most as likely as the golden's least.
        ([*WANT, (4, -1.0)], 1.5),
    ],
)
def test_only_what_the_shown_tokens_exclude_is_a_difference(got, most):
    assert apart(got) == most


@pytest.mark.parametrize("token", [1, 4])
def test_nan_is_a_difference(token):
    got = [pair for pair in WANT if pair[0] != token]
    assert math.isnan(apart([*got, (token, None)]))


def test_nan_alone_gives_no_bound():
    theirs, mine = row_pair(WANT, [(1, None)], 6)
    assert theirs.tolist() == row(WANT, 6).tolist()
    assert mine[2:].tolist() == theirs[2:].tolist()
