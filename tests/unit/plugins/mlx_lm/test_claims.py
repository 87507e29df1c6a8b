"""What mlx-lm's generator says of its rows and caches."""

import contextlib
from types import SimpleNamespace

import pytest

from conformance.core.engine_options import EngineOptions
from conformance.plugins.mlx_lm import compat
from conformance.plugins.mlx_lm.claims import Claims, Counting, counted


@pytest.fixture
def generator(model):
    made = compat.make_generator(model, EngineOptions(prefill_step_size=3))
    yield made
    made.close()


@pytest.fixture
def claims(generator):
    return Claims(generator)


def wrong(claims):
    return [claim.what for claim in claims.taken() if not claim.holds]


def test_a_working_generator_says_what_is_so(claims, generator):
    generator.insert([[1, 2, 3, 4], [5, 6]], max_tokens=[2, 3])
    while compat.uids_by_stage(generator):
        prompts, _ = generator.next()
        claims.live_bytes()
        claims.rows(EngineOptions())
        for response in prompts:
            if response.end_of_prompt:
                claims.ends(response)
    made = claims.taken()
    assert len({claim.what for claim in made}) == 7
    assert [claim for claim in made if not claim.holds] == []
    assert claims.taken() == ()


def test_bytes_that_are_not_there_are_seen(claims, generator, monkeypatch):
    generator.insert([[1, 2, 3, 4]], max_tokens=[2])
    generator.next()
    monkeypatch.setattr(type(generator), "prompt_cache_nbytes", 8)
    claims.live_bytes()
    assert "bytes of live caches" in wrong(claims)


def test_more_rows_than_there_may_be_are_seen(claims, generator):
    generator.insert([[1, 2, 3, 4], [5, 6, 7]], max_tokens=[2, 2])
    generator.next()
    claims.rows(EngineOptions(prefill_batch_size=1, completion_batch_size=1))
    assert wrong(claims) == ["prompts at once"]


def test_a_prompt_that_overtakes_another_is_seen(claims, generator):
    generator.insert([[1, 2, 3, 4], [5, 6, 7], [8, 9, 1]], max_tokens=[2, 2, 2])
    generator.prefill_batch_size = 2
    generator._unprocessed_sequences.reverse()
    generator.next()
    claims.rows(EngineOptions(prefill_batch_size=2))
    assert wrong(claims) == ["prompts begun before one that came earlier"]


def test_a_uid_that_is_given_again_is_seen(claims):
    claims.inserted(4, [[1, 2]])
    claims.inserted(5, [[1, 2]])
    assert wrong(claims) == []
    claims.inserted(4, [[3]])
    assert wrong(claims) == ["earlier requests with the uid of a new one"]


def given(**fields):
    return SimpleNamespace(**{"uid": 4, "finish_reason": None, "all_tokens": None} | fields)


def test_a_row_that_has_ended_has_all_of_its_tokens(claims):
    claims.inserted(4, [[1], [2, 3]], before=[8])
    claims.produced(given(token=5))
    claims.kept(4, [8, 1, 2, 3, 5])
    claims.produced(given(token=6, finish_reason="length", all_tokens=[8, 1, 2, 3, 5, 6]))
    assert wrong(claims) == []


COUNT, ALIKE = (f"tokens {what}, beside its cache" for what in ("of a row", "that are the row's"))


@pytest.mark.parametrize(
    ("tokens", "seen"),
    [([2, 3, 6], [COUNT, ALIKE]), ([1, 2, 3, 5], [ALIKE]), ([1, 2, 3, 6, 6], [COUNT, ALIKE])],
    ids=["without the first", "of another row", "the last twice"],
)
def test_other_tokens_than_the_rows_are_seen(claims, tokens, seen):
    claims.inserted(4, [[1], [2, 3]])
    claims.produced(given(token=6, finish_reason="stop", all_tokens=tokens))
    assert wrong(claims) == seen


def test_a_prompt_that_ends_within_a_piece_is_seen(claims):
    claims.ends(SimpleNamespace(end_of_segment=False, progress=(3, 4)))
    assert len(wrong(claims)) == 2


def stats(**fields):
    right = {"prompt_tokens": 3, "prompt_time": 0.1, "decode_time": 0.2}
    return SimpleNamespace(**right | {"generation_tokens": 2, "generation_steps": 1} | fields)


def test_the_statistics_of_a_step_are_those_of_the_step(claims):
    claims.step(stats(), 0.5, prompts=3, tokens=2)
    claims.step(None, 0.5, prompts=3, tokens=2)
    claims.step(SimpleNamespace(prompt_tokens=9), 0.5, prompts=3, tokens=2)
    assert len(made := claims.taken()) == 5
    assert all(claim.holds for claim in made)


@pytest.mark.parametrize(
    ("fields", "what"),
    [
        ({"prompt_tokens": 4}, "prompt tokens of a step"),
        ({"generation_tokens": 3}, "tokens of a step"),
        ({"generation_steps": 2}, "steps of decoding in a step"),
        # Set to the time of this step where it should grow by it.
        ({"decode_time": -0.1}, "seconds of decoding in a step"),
        ({"decode_time": 0.6}, "seconds of decoding in a step"),
        ({"prompt_time": -0.1}, "seconds of prefill in a step"),
        ({"prompt_time": 0.6}, "seconds of prefill in a step"),
    ],
)
def test_a_wrong_figure_of_a_step_is_seen(claims, fields, what):
    claims.step(stats(**fields), 0.5, prompts=3, tokens=2)
    assert wrong(claims) == [what]


def test_caches_that_nobody_asked_for_are_seen(claims, generator):
    (uid,) = generator.insert([[1, 2, 3, 4]], max_tokens=[2])
    generator.next()
    claims.removed(generator.remove([uid]))
    assert wrong(claims) == []
    claims.removed({uid: object()})
    assert wrong(claims) == ["caches of removed rows, unasked"]


@pytest.mark.parametrize(("done", "said"), [(2, True), (3, False)])
def test_a_piece_ends_where_it_should(claims, done, said):
    claims.inserted(0, [[1, 2], [], [3, 4, 5]])
    claims.piece(SimpleNamespace(uid=0, progress=(done, 5), end_of_segment=said))
    claims.piece(SimpleNamespace(uid=0, progress=(4, 5), end_of_segment=True))
    claims.piece(SimpleNamespace(uid=0, progress=(4, 5)))
    assert wrong(claims) == []
    claims.piece(SimpleNamespace(uid=0, progress=(done, 5), end_of_segment=not said))
    assert wrong(claims) == ["ends of a piece of a prompt"]


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
    divides = iter((True, True, True))  # the window around all calls, and that of each

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
    with counting.measured():
        pass
    assert counting.last[0] is None, "a call that was right is no crash, as up to 0.31.3"
    assert counting.counted() is None
