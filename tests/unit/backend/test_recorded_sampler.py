"""What a sampler was given is held to what events report."""

import mlx.core as mx
import numpy as np
import pytest

from conformance.backend.recorded_sampler import RecordedSampler, recorded
from conformance.core.trace import TokenEvent

TABLE = np.log(np.array([[0.5, 0.3, 0.2], [0.1, 0.2, 0.7]], np.float32))


def sampler():
    made = RecordedSampler(lambda logprobs: mx.argmax(logprobs, axis=-1))
    assert made(mx.array(TABLE)).tolist() == [0, 2]
    return made


def event(row, token, *, by=0.0, whole=True):
    logprobs = TABLE[row] + np.float32(by)
    own = float(logprobs[token])
    return TokenEvent("a", token, logprobs if whole else None, own)


@pytest.mark.parametrize("whole", [True, False])
def test_rows_of_one_call_are_found_in_any_order_and_once(whole):
    made = sampler()
    events = [event(1, 2, whole=whole), event(0, 0, whole=whole), event(0, 0, whole=whole)]
    assert [made.claim(one).holds for one in events] == [True, True, False]


@pytest.mark.parametrize(
    "wrong", [event(0, 0, by=2e-7), event(0, 0, by=2e-7, whole=False), event(0, 1), event(1, 0)]
)
def test_other_bits_or_another_token_are_found(wrong):
    claim = sampler().claim(wrong)
    assert (claim.said, claim.found, claim.holds) == ("0", "1", False)


def test_numbers_in_half_precision_are_those_of_the_event():
    made = RecordedSampler(lambda logprobs: mx.argmax(logprobs, axis=-1))
    row = mx.array(TABLE[:1]).astype(mx.bfloat16)
    made(row)
    assert made.claim(TokenEvent("a", 0, np.array(row.astype(mx.float32))[0], None)).holds


def test_no_sampler_is_none():
    assert recorded(None) is None
