"""A step that is off as a whole: rounding for a golden of another device, a difference here."""

import numpy as np
import pytest
from miniatures.goldens import recorded

from conformance.core.trace import Stream
from conformance.tools.golden.batched import Line, _by_tokens

GOLDEN = recorded(tokens=(3, 4), margins=(0.5, 0.25), noise=(1e-6, 1e-6))
VOCAB, SHIFT = 40_000, 1e-3


def rows(shift):
    table = np.full((2, VOCAB), -20.0, np.float32)
    for row, step in zip(table, GOLDEN.top, strict=True):
        for token, value in step:
            row[token] = value
    return table + np.float32(shift)


def line(*, elsewhere):
    return Line(GOLDEN, Stream(GOLDEN.tokens, rows(SHIFT)), (), elsewhere=elsewhere)


@pytest.mark.parametrize("elsewhere", [True, False])
def test_a_shift_of_the_single_stream_holds_on_another_device_alone(elsewhere):
    assert line(elsewhere=elsewhere).settle(rows(SHIFT)).holds == elsewhere


def test_a_batch_that_is_shifted_by_more_than_the_single_stream_holds_nowhere():
    assert not line(elsewhere=True).settle(rows(SHIFT + 1e-4)).holds


@pytest.mark.parametrize("elsewhere", [True, False])
def test_so_do_the_logprobs_of_single_tokens(elsewhere):
    own = np.take_along_axis(rows(SHIFT), np.array(GOLDEN.tokens)[:, None], axis=-1)[:, 0]
    found = list(_by_tokens(line(elsewhere=elsewhere), Stream(GOLDEN.tokens, None, own)))
    assert (found == []) == elsewhere
