"""A run at the golden's tokens beside the golden: rounding holds, all else is reported."""

import numpy as np
import pytest
from miniatures.goldens import recorded

from conformance.core.errors import GoldenError
from conformance.core.numerics import Envelope
from conformance.tools.golden.compare import common_shift, compare, settle

VOCAB = 10
LINE = recorded(tokens=(3, 4, 5), margins=(0.5, 0.25, 2e-6), noise=(1e-6, 1e-6, 1e-6))


def run(line=LINE, **changed):
    """Logprobs as the golden has them, all other tokens far below; ``s3_t4=x`` adds to one."""
    table = np.full((len(line.tokens), VOCAB), -9.0, np.float64)
    for row, step in zip(table, line.top, strict=True):
        for token, value in step:
            row[token] = value
    for place, more in changed.items():
        step, token = place[1:].split("_t")
        table[int(step), int(token)] += more
    return table.astype(np.float32)


def envelope(level, steps=3):
    return Envelope(np.full(steps, level), np.full(steps, level), level)


def test_the_same_holds():
    found = compare(LINE, run())
    assert found.holds
    assert str(found) == "request 'short': as the golden, up to rounding"
    assert compare(LINE, run(s1_t8=1.5e-6)).holds


def test_more_than_rounding_is_reported_with_request_step_token_margin_and_noise():
    found = compare(LINE, run(s1_t8=1e-4))
    assert not found.holds
    assert found.step == 1
    assert str(found) == (
        "request 'short', step 1: token 4 (margin 0.25 nats), logprobs 0.0001 nats off, noise 1e-06"
    )


def test_another_token_is_reported():
    found = compare(LINE, run(s0_t7=1.0))
    assert (found.step, found.turned) == (0, 0)
    assert "step 0: token 7 in place of 3 (margin 0.5 nats)" in str(found)


def test_a_token_that_is_not_kept_may_not_become_the_best():
    found = compare(LINE, run(s1_t0=9.0))
    assert found.turned == 1
    assert "token 0 in place of 4" in str(found)


def test_two_near_tokens_may_change_places():
    swapped = run(s2_t5=-2e-6, s2_t7=2e-6)
    assert swapped[2].argmax() == 7
    assert compare(LINE, swapped).holds


def test_nan_never_holds():
    table = run()
    table[1] = np.nan
    assert compare(LINE, table).step == 1


def test_a_little_too_much_at_most_steps_is_too_much():
    wide = {f"s{step}_t8": 3e-6 for step in range(3)}
    assert compare(LINE, run(s0_t8=3e-6)).holds
    assert not compare(LINE, run(**wide)).holds


def test_a_run_that_ended_early_is_reported():
    found = compare(LINE, run()[:2])
    assert found.step == 2
    assert str(found) == "request 'short': ended after 2 of 3 tokens"


def test_the_larger_noise_counts():
    moved = run(s1_t8=1e-5)
    assert not compare(LINE, moved, envelope(1e-7)).holds
    assert compare(LINE, moved, envelope(5e-6)).holds


def test_noise_is_measured_only_where_the_goldens_own_does_not_do():
    asked = []

    def measure():
        asked.append(1)
        return envelope(5e-6)

    assert settle(LINE, run(), [measure]).holds
    assert asked == []
    assert settle(LINE, run(s1_t8=1e-5), [measure]).holds
    assert asked == [1]
    assert not settle(LINE, run(s1_t8=1.0), [measure]).holds, "no noise explains that"
    assert asked == [1]


def test_a_golden_of_a_larger_vocabulary_is_reported():
    with pytest.raises(GoldenError, match="token 8 is not in a vocabulary of 6"):
        compare(LINE, run()[:, :6])


def shifted(by, *, vocab):
    table = np.full((3, vocab), -20.0, np.float32)
    table[:, :VOCAB] = run()
    return table + np.float32(by)


def test_what_a_sum_over_the_vocabulary_may_round_is_a_shift_of_the_whole_step():
    found = common_shift(LINE, shifted(1e-3, vocab=40_000))
    assert found == pytest.approx([1e-3] * 3, rel=0.01)


def test_more_than_that_sum_can_round_is_none():
    assert (common_shift(LINE, shifted(1e-3, vocab=10_000)) == 0).all()


def test_what_is_off_in_one_token_is_none():
    table = shifted(0, vocab=40_000)
    table[:, 8] += 1e-3
    assert np.abs(common_shift(LINE, table)).max() < 1e-6
    assert not compare(LINE, table - common_shift(LINE, table)[:, None]).holds


def test_nan_is_no_shift():
    assert (common_shift(LINE, shifted(np.nan, vocab=20)) == 0).all()
