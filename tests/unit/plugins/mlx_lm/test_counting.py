"""The statistics of mlx-lm's generator, and of its function for a whole call."""

import contextlib
from types import SimpleNamespace

import pytest

from conformance.core.engine_options import EngineOptions
from conformance.plugins.mlx_lm import compat
from conformance.plugins.mlx_lm.counting import Counting, counted


def test_a_generator_counts_from_now_until_it_is_asked(model):
    generator = compat.make_generator(model, EngineOptions(prefill_step_size=3))
    generator.insert([[1, 2, 3, 4]], max_tokens=[1])
    generator.next()
    counting = Counting(generator)
    generator.insert([[5, 6, 7], [8, 9]], max_tokens=[2, 3])
    tokens, steps = 0, 0
    while compat.uids_by_stage(generator):
        with counting.measured():
            _, responses = generator.next()
        tokens, steps = tokens + len(responses), steps + bool(responses)
        own, seconds = counting.last
        assert own.generation_tokens == len(responses)
        assert own.prompt_time + own.decode_time <= seconds
    found = counting.counted()
    assert (found.outputs.tokens, found.steps) == (tokens, steps)
    assert found.prompts.tokens == 2 + 1
    assert 0 < found.prompts.seconds + found.outputs.seconds <= found.wall == counting.seconds
    generator.close()


def test_a_release_that_counts_less_says_nothing():
    assert counted(None, 1.0) is None
    assert counted(SimpleNamespace(prompt_tokens=3, generation_tokens=2), 1.0) is None
    assert Counting(SimpleNamespace()).counted() is None
    counting = Counting(SimpleNamespace(stats=lambda: None))
    with counting.measured():
        pass
    assert counting.last[0] is None
    assert counting.counted() is None


def test_the_error_of_a_call_is_not_hidden_by_the_end_of_its_statistics():
    divides = iter((False, True, True))  # the window around all calls, and that of each

    @contextlib.contextmanager
    def stats():
        fails = next(divides)
        try:
            yield SimpleNamespace()
        finally:
            if fails:
                raise ZeroDivisionError("prompt_tokens / prompt_time")

    counting = Counting(SimpleNamespace(stats=stats))
    with pytest.raises(ValueError, match="too many values"), counting.measured():
        raise ValueError("too many values to unpack")
    with pytest.raises(ZeroDivisionError, match="prompt_time"), counting.measured():
        pass
