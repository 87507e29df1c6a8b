"""What is accused only in half precision: bits of a batch of one, and errors of one sign."""

import dataclasses

import msgspec
import numpy as np
import pytest
from miniatures.plays import NOISE, Script, spread_rows

from conformance.checks.half_precision import check_half_precision
from conformance.checks.scales import _limit, scales_off
from conformance.core.schedule import Arrival


def script(dtype="bfloat16", **kind):
    made = Script(**kind)
    made.dtype = dtype
    return made


@pytest.mark.parametrize("kind", [{"alone": True}, {"rows": 12}])
def test_a_right_play_has_no_finding(kind):
    assert check_half_precision(script(**kind).play()) == []


def one_bit(made):
    made.forced.move("a", 3, 0.5 * NOISE)
    return made


def test_a_batch_of_one_is_its_single_stream_to_the_bit():
    (found,) = check_half_precision(one_bit(script(alone=True)).play())
    assert (found.request_id, found.step) == ("a", 3)
    assert found.what.endswith("8 logprobs differ at output token 3")


def test_float32_has_less_noise_and_other_kernels_other_bits():
    assert check_half_precision(one_bit(script("float32", alone=True)).play()) == []
    assert check_half_precision(one_bit(script(alone=True)).play(same_calls=False)) == []


def cold(rows, signs):
    made = script("float16", rows=rows)
    for row in range(rows):
        for step in range(5):
            made.forced.move(f"r{row}", step, signs[row % len(signs)] * (1 + row / 100) * 1e-3)
    return made


def test_errors_of_one_sign_are_a_bias():
    (found,) = check_half_precision(cold(12, [1]).play(same_products=False))
    assert found.what.startswith("the chosen tokens' logprobs are +0.00105")
    assert check_half_precision(cold(12, [1, -1]).play(same_products=False)) == []
    few = cold(11, [1]).play(same_products=False)
    assert check_half_precision(few) == [], "too few rows"


def moved_in(rows, count, dtype="float16"):
    made = script(dtype, rows=rows)
    for row in range(count):
        made.forced.move(f"r{row}", row % 5, 1e-9 if row else 1e-7)
        made.forced.move(f"r{row}", 3, (-1) ** row * 1e-6, token=0)
    return made.play


@pytest.mark.parametrize(
    ("dtype", "rows", "moved", "found"),
    [
        ("float16", 12, 5, 1),
        ("float16", 12, 4, 0),
        ("float16", 8, 3, 1),
        ("float16", 5, 5, 0),
        ("bfloat16", 8, 3, 1),
        ("bfloat16", 18, 4, 0),
        ("bfloat16", 18, 5, 1),
        ("bfloat16", 32, 6, 0),
        ("bfloat16", 32, 7, 1),
    ],
)
def test_most_rows_are_their_single_streams_to_the_bit(dtype, rows, moved, found):
    said = check_half_precision(moved_in(rows, moved, dtype)())
    assert [f.what for f in said] == [
        f"{moved} of {rows} rows are not their single streams to the bit"
    ] * found
    assert check_half_precision(moved_in(rows, moved)(same_products=False)) == []


def test_rows_of_one_prompt_have_one_error():
    made = cold(24, [1])
    requests = [
        msgspec.structs.replace(r, prompt=(1, 2, at % 11))
        for at, r in enumerate(made.schedule.requests)
    ]
    schedule = msgspec.structs.replace(made.schedule, arrivals=(Arrival(tuple(requests)),))
    play = made.play(same_products=False)
    assert len(check_half_precision(play)) == 1
    assert check_half_precision(dataclasses.replace(play, schedule=schedule)) == []


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize(
    ("rows", "group"),
    [
        (range(1, 48, 2), "rows 1 of 2"),
        (range(3, 48, 4), "rows 3 of 4"),
        (range(8, 48), "rows past the eighth"),
        (range(48), "all rows"),
        ([5, 7], ""),
    ],
)
def test_a_scale_that_is_off_in_some_rows_is_said_with_these_rows(dtype, rows, group):
    made = script(dtype, rows=48)
    spread_rows(made, rows)
    found = {name: off for name, off, _ in scales_off(made.play(), made.forced.trace())}
    assert found.get(group, 0.004) == pytest.approx(0.0042, rel=0.1)
    assert bool(found) is bool(group)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_rounding_moves_no_scale(dtype):
    rng = np.random.default_rng(3)
    found = []
    for _ in range(40):
        made = script(dtype, rows=24)
        for row in range(24):
            for step in range(5):
                moment, place = made.forced.event(f"r{row}", step)
                logprobs = moment.events[place].logprobs
                logprobs = logprobs * (1 + rng.normal(0, 0.004, logprobs.shape))
                made.forced.change(f"r{row}", step, logprobs=logprobs.astype(np.float32))
        found += scales_off(made.play(), made.forced.trace())
    assert found == []


def test_a_limit_is_that_of_students_t():
    # Of one degree of freedom it is the Cauchy distribution's, of many nearly the normal one's.
    assert _limit(1) == pytest.approx(2 / (np.pi * 1e-12), rel=0.02)
    assert 7.1 < _limit(2000) < 7.4
