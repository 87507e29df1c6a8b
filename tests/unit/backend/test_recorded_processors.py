"""What a row's logits processors are given is held to the row's tokens."""

import mlx.core as mx
import pytest

from conformance.backend.recorded_processors import GivenDtype, RecordedProcessors
from conformance.core.trace import FinishReason, TokenEvent

PROMPT, CHOSEN = [5, 6], [7, 8]


def claims(*given, dtypes=(mx.float32, mx.float32), ends=True):
    """The claims about a row of two tokens whose processor is given these tokens."""
    made = RecordedProcessors()
    first, second = made.recorded([lambda _, logits: logits + 1, lambda _, logits: logits])
    made.add("a", [first, second], PROMPT)
    for tokens, dtype in zip(given, dtypes, strict=True):
        assert first(mx.array(tokens), mx.zeros((1, 9), dtype)).tolist() == [[1.0] * 9]
    events = [TokenEvent("a", token) for token in CHOSEN]
    assert made.claims(events[:1]) == [], "tokens are not read before the row has left"
    if ends:
        return made.claims([TokenEvent("a", 8, finish_reason=FinishReason.LENGTH)])
    return [*made.claims(events[1:]), *made.removed("a")]


@pytest.mark.parametrize("ends", [True, False])
def test_a_row_is_given_its_prompt_and_its_tokens_so_far(ends):
    assert [claim.holds for claim in claims([5, 6], [5, 6, 7], ends=ends)] == [True, True]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (([5], [5, 7]), "2 tokens that end in [5, 7]"),
        (([5, 6], [6, 7]), "2 tokens that end in "),
        (([5, 6], [5, 6, 8]), "3 tokens that end in [5, 6, 8]"),
    ],
    ids=["prompt cut", "shifted", "another row's"],
)
def test_other_tokens_are_found(given, said):
    tokens, dtype = claims(*given)
    assert not tokens.holds
    assert dtype.holds
    assert tokens.drift
    assert tokens.where(3) == "a logits processor is not given the row's tokens"
    assert said in tokens.said


def test_logits_of_another_dtype_are_found():
    tokens, dtype = claims([5, 6], [5, 6, 7], dtypes=(mx.bfloat16, mx.float32))
    assert (tokens.holds, dtype.holds) == (True, False)
    assert dtype.dtype == ""
    assert "bfloat16" in dtype.said
    assert "float32" in dtype.said


def test_the_dtype_that_a_row_is_given_is_said():
    _, dtype = claims([5, 6], [5, 6, 7], dtypes=(mx.bfloat16, mx.bfloat16))
    given = GivenDtype()
    logits = mx.zeros((1, 9), mx.bfloat16)
    assert given(mx.array(PROMPT), logits) is logits
    assert given.dtype == dtype.dtype == "mlx.core.bfloat16"


def test_a_processor_that_is_never_called_is_found():
    (tokens,) = claims(dtypes=())
    assert not tokens.holds


def test_rows_without_processors_claim_nothing():
    made = RecordedProcessors()
    made.add("a", [], PROMPT)
    assert made.claims([TokenEvent("a", 7, finish_reason=FinishReason.LENGTH)]) == []
    assert made.removed("a") == []
