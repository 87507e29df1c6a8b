"""One row: how its prompt is cut, what it chooses, when it ends."""

import mlx.core as mx
import pytest

from conformance.core.schedule import Request
from conformance.core.trace import FinishReason
from conformance.reference.sequence import Sequence, pieces_of


def row(**options):
    request = Request("r", options.pop("prompt", (1, 2)), options.pop("max_tokens", 9), **options)
    return Sequence(request, caches=[], todo=list(request.prompt), pieces=[])


@pytest.mark.parametrize(
    ("length", "segments", "pieces"),
    [
        (1, (), []),
        (2, (), [1]),
        (9, (), [4, 4]),
        (11, (), [4, 4, 2]),
        (11, (6, 5), [4, 2, 4]),
        (7, (6, 1), [4, 2]),
    ],
)
def test_all_but_the_last_token_is_cut_and_a_segment_ends_a_piece(length, segments, pieces):
    request = Request("r", tuple(range(length)), 1, segments=segments)
    assert pieces_of(request, 4, whole=False) == pieces


@pytest.mark.parametrize(
    ("length", "segments", "pieces"),
    [
        (5, (), [4]),
        (9, (), [4, 4]),
        (11, (), [4, 4, 3]),
        (7, (6, 1), [4, 2]),
    ],
)
def test_the_last_token_goes_with_the_last_of_several_pieces_if_there_is_room(
    length, segments, pieces
):
    request = Request("r", tuple(range(length)), 1, segments=segments)
    assert pieces_of(request, 4, whole=True) == pieces


def test_what_is_fed_is_no_longer_to_do():
    fed = row(prompt=(5, 6, 7))
    assert fed.feed(2).tokens == (5, 6)
    assert (fed.history, fed.todo, fed.tokens) == ([5, 6], [7], [5, 6, 7])


def test_logprobs_are_normalised_and_the_choice_is_greedy():
    token, logprobs = row().choose(mx.array([0.0, 3.0, 1.0]), [1])
    assert token == 1
    assert mx.exp(logprobs).sum().item() == pytest.approx(1)


def test_processors_see_all_tokens_and_change_the_choice():
    seen = []

    def forbid_one(tokens, logits):
        seen.append(tokens.tolist())
        return logits - mx.array([[0.0, 9.0, 0.0]])

    fed = row()
    fed.processors = [forbid_one]
    assert fed.choose(mx.array([0.0, 3.0, 1.0]), [4, 5])[0] == 2
    assert seen == [[4, 5]]


def test_a_sampler_of_its_own_chooses():
    fed = row()
    fed.sampler = lambda logprobs: mx.argmin(logprobs, axis=-1)
    assert fed.choose(mx.array([0.0, 3.0, -1.0]), [4])[0] == 2


def test_it_ends_with_a_stop_sequence_or_its_last_token():
    stopped = row(max_tokens=4, stop=((7, 8), (9, 9)))
    assert [stopped.accept(token) for token in (8, 7, 8)] == [None, None, FinishReason.STOP]
    ended = row(max_tokens=2, stop=((7, 8),))
    assert [ended.accept(token) for token in (8, 7)] == [None, FinishReason.LENGTH]
