"""Goldens are recorded once for each distinct request, from a single stream that holds."""

import numpy as np
import pytest

from conformance.core.engine_options import EngineOptions
from conformance.core.errors import GoldenError
from conformance.core.numerics import Deviation, Envelope
from conformance.core.schedule import Arrival, Continuation, Request, Schedule
from conformance.core.trace import Stream
from conformance.reference.noise import PERTURBED_RUNS, THOROUGH_RUNS
from conformance.reference.oracle import OracleCheck
from conformance.tools.vectors.single_streams import Recorder


class Oracle:
    """Says tokens 4, 5, ... with noise of 1e-5; counts how often it is asked."""

    def __init__(self, *, spoil=None, agrees=True):
        self.asked = []
        self.runs = []
        self.spoil = spoil
        self.agrees = agrees

    def solo(self, request, options, schedule):
        self.asked.append(request.request_id)
        rows = np.full((request.max_tokens, 8), -3.0, np.float32)
        for step in range(request.max_tokens):
            rows[step, 4 + step] = -0.1
        if self.spoil is not None:
            rows[0] = self.spoil
        return Stream(tuple(4 + i for i in range(request.max_tokens)), rows)

    def check_stateless(self, request, options):
        noise = self.envelope(request, options, None, runs=PERTURBED_RUNS)
        bad = None if self.agrees else 0
        return OracleCheck(Deviation(np.zeros(1), np.zeros(1), 0, bad), noise)

    def envelope(self, request, options, schedule, *, runs):
        self.runs.append(runs)
        level = np.full(request.max_tokens + 4, 1e-5, np.float32)
        return Envelope(level, level, 1e-6)


def schedule(*requests, name="s", **options):
    return Schedule(name, (Arrival(requests),), options=EngineOptions(**options))


def request(name, length=3, **more):
    return Request(name, tuple(range(1, length + 1)), 2, **more)


def test_a_golden_holds_the_most_likely_tokens_best_first():
    recorder = Recorder(Oracle(), top=3)
    ids = recorder.record(schedule(request("a")), "ragged")
    assert ids == {"a": "ragged/s/a"}
    golden = recorder.recorded["ragged/s/a"]
    assert golden.request.request_id == "ragged/s/a"
    assert golden.tokens == (4, 5)
    assert golden.top[1] == ((5, -0.1), (0, -3.0), (1, -3.0))
    assert golden.margins == pytest.approx((2.9, 2.9))
    assert golden.noise == (1e-5, 1e-5)
    assert recorder.checked == 1


def test_the_noise_is_of_many_runs():
    oracle = Oracle()
    Recorder(oracle, top=3).record(schedule(request("a")), "ragged")
    assert oracle.runs[-1] == THOROUGH_RUNS


def test_equal_requests_share_a_golden():
    oracle = Oracle()
    recorder = Recorder(oracle, top=3)
    recorder.record(schedule(request("a"), request("b")), "ragged")
    ids = recorder.record(schedule(request("z"), name="t"), "wide")
    assert ids == {"z": "ragged/s/a"}
    assert oracle.asked == ["a"]


@pytest.mark.parametrize(
    "other",
    [
        schedule(request("a"), prefill_step_size=1),
        schedule(request("a", length=4)),
        schedule(request("a", stop=((5,),))),
    ],
)
def test_other_requests_and_other_pieces_do_not(other):
    recorder = Recorder(Oracle(), top=3)
    recorder.record(schedule(request("a")), "ragged")
    assert recorder.record(other, "other") == {"a": "other/s/a"}
    assert len(recorder.recorded) == 2


def test_pieces_that_cut_nothing_are_none():
    recorder = Recorder(Oracle(), top=3)
    recorder.record(schedule(request("a")), "ragged")
    assert recorder.record(schedule(request("a"), prefill_step_size=2), "x") == {"a": "ragged/s/a"}


def test_what_goes_on_names_the_golden_that_it_goes_on_from():
    recorder = Recorder(Oracle(), top=3)
    more = request("b", continues=Continuation("a", 1))
    recorder.record(schedule(request("a"), more), "ragged")
    assert recorder.recorded["ragged/s/b"].request.continues == Continuation("ragged/s/a", 1)


@pytest.mark.parametrize("spoil", [np.nan, -np.inf])
def test_numbers_that_are_not_finite_are_no_truth(spoil):
    recorder = Recorder(Oracle(spoil=spoil), top=3)
    with pytest.raises(GoldenError, match="ragged/s/a: the single stream's logprobs are not"):
        recorder.record(schedule(request("a")), "ragged")
    assert recorder.recorded == {}


def test_a_single_stream_that_disagrees_is_no_truth():
    recorder = Recorder(Oracle(agrees=False), top=3)
    with pytest.raises(GoldenError, match="disagrees with the pass without a cache"):
        recorder.record(schedule(request("a")), "ragged")


def test_a_schedule_that_fails_leaves_nothing_behind():
    oracle = Oracle()
    recorder = Recorder(oracle, top=3)
    bad = schedule(request("a"), request("b", length=4))
    oracle.check_stateless = lambda request, options: OracleCheck(
        Deviation(np.zeros(1), np.zeros(1), 0, 0 if request.request_id == "b" else None),
        oracle.envelope(request, options, None, runs=PERTURBED_RUNS),
    )
    with pytest.raises(GoldenError):
        recorder.record(bad, "ragged")
    ids = recorder.record(schedule(request("a")), "wide")
    assert ids["a"] in recorder.recorded


def test_masked_tokens_are_left_out():
    row = np.full(8, -np.inf, np.float32)
    row[[2, 3]] = -0.7
    recorder = Recorder(Oracle(spoil=row), top=4)
    recorder.record(schedule(request("a")), "ragged")
    assert [token for token, _ in recorder.recorded["ragged/s/a"].top[0]] == [2, 3]
