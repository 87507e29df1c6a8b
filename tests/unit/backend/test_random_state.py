"""What spoils the state of random numbers is seen, and does not reach what follows."""

from functools import partial

import mlx.core as mx
import pytest

from conformance.backend.random_state import can_draw, drawing_kept


@partial(mx.compile, inputs=mx.random.state)
def refuse(_):
    raise ValueError("out of range")


def test_an_error_while_a_function_is_traced_spoils_it_for_nobody_else():
    with drawing_kept():
        with pytest.raises(ValueError, match="out of range"):
            refuse(mx.zeros(1))
        spoilt = not can_draw()
    assert spoilt
    assert can_draw()


def test_a_state_that_is_whole_stays_as_it_is():
    mx.random.seed(5)
    wanted = mx.random.uniform(shape=(3,)).tolist()
    mx.random.seed(5)
    with drawing_kept():
        pass
    assert mx.random.uniform(shape=(3,)).tolist() == wanted
