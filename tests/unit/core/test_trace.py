"""A trace puts together per request what steps gave out one by one."""

import numpy as np

from conformance.core.phases import ForwardCall
from conformance.core.schedule import Arrival, Request, Schedule, Stage
from conformance.core.trace import (
    Failure,
    FinishReason,
    Mode,
    Step,
    StepOutput,
    TokenEvent,
    Trace,
    own_logprob,
    watched,
)

SCHEDULE = Schedule("s", (Arrival((Request("a", (1,), 2), Request("b", (2,), 2))),))


def row(value):
    return np.full(4, value, np.float32)


def trace(*steps):
    return Trace(
        SCHEDULE,
        Mode.FREE,
        tuple(
            Step(i, {"a": Stage.DECODE}, StepOutput(events), (ForwardCall(2, 3),))
            for i, events in enumerate(steps)
        ),
    )


FULL = trace(
    (TokenEvent("a", 7, row(-1.0), -1.0), TokenEvent("b", 8, row(-2.0), -2.0)),
    (),
    (TokenEvent("a", 9, row(-3.0), -3.0, FinishReason.STOP),),
)


def test_events_are_those_of_one_request_in_order():
    assert [event.token for event in FULL.events("a")] == [7, 9]
    assert FULL.events("nobody") == ()


def test_a_stream_has_tokens_logprobs_and_the_reason():
    stream = FULL.stream("a")
    assert stream.tokens == (7, 9)
    assert stream.logprobs.shape == (2, 4)
    assert stream.logprobs[1, 0] == -3.0
    assert stream.token_logprobs.tolist() == [-1.0, -3.0]
    assert stream.finish_reason is FinishReason.STOP


def test_a_request_that_did_not_end_has_no_reason():
    assert FULL.stream("b").finish_reason is None


def test_a_silent_request_has_an_empty_stream():
    stream = FULL.stream("nobody")
    assert (stream.tokens, stream.logprobs, stream.finish_reason) == ((), None, None)


def test_logprobs_are_given_only_if_every_event_has_them():
    stream = trace((TokenEvent("a", 1, row(-1.0)),), (TokenEvent("a", 2),)).stream("a")
    assert stream.tokens == (1, 2)
    assert stream.logprobs is None
    assert stream.token_logprobs is None


def test_of_two_reasons_the_last_counts():
    twice = trace(
        (TokenEvent("a", 1, finish_reason=FinishReason.STOP),),
        (TokenEvent("a", 2, finish_reason=FinishReason.LENGTH),),
    )
    assert twice.stream("a").finish_reason is FinishReason.LENGTH


def test_forwards_are_those_of_all_steps():
    assert FULL.forwards == (ForwardCall(2, 3),) * 3
    assert ForwardCall(2, 3).positions == 6


def test_in_stage_names_the_requests_that_were_there():
    step = Step(0, {"a": Stage.DECODE, "b": Stage.QUEUED, "c": Stage.DECODE}, StepOutput())
    assert step.in_stage(Stage.DECODE) == ("a", "c")
    assert step.in_stage(Stage.PREFILL) == ()


def test_a_failure_reads_as_one_line():
    failure = Failure("ValueError", "no", "mlx_lm/generate.py:3", "step 2")
    assert str(failure) == "ValueError: no [mlx_lm/generate.py:3, in step 2]"


def test_the_logprob_of_a_token_is_that_of_its_distribution():
    logprobs = np.array([-1.5, -0.5, np.nan], np.float32)
    assert own_logprob(TokenEvent("a", 1, logprobs, -0.5)).holds
    assert own_logprob(TokenEvent("a", 2, logprobs, float("nan"))).holds
    wrong = own_logprob(TokenEvent("a", 0, logprobs, -0.5))
    assert (wrong.holds, wrong.said, wrong.found) == (False, "-0.5", "-1.5")


def test_a_refusal_that_changes_nothing():
    def refuse():
        raise ValueError("no")

    result = watched("kind", refuse, lambda: {"rows": 1})
    assert (result.kind, result.error, result.changed) == ("kind", "ValueError: no", ())


def test_a_call_that_is_taken_and_what_it_changes():
    rows = []
    result = watched("kind", lambda: rows.append(1), lambda: {"rows": list(rows), "other": 0})
    assert result.error is None
    assert result.changed == ("rows: [] became [1]",)
