"""Stop tokens are chosen so that a row stops at its first token and another reaches its limit."""

from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conformance.core.schedule import Request
from conformance.scenarios.stop_tokens import stopping

# As of nemotron: the last row's first token comes in all rows but one.
OF_NEMOTRON = [(26, 112, 44), (169, 87, 168), (112, 44), (112, 178, 94)]


def stops_and_ends(outputs):
    """The stop tokens, and of each row at which token it stops; ``None`` for its limit."""
    rows = [Request(f"r{n}", (1, 2), len(output)) for n, output in enumerate(outputs)]
    tokens = {row.request_id: output for row, output in zip(rows, outputs, strict=True)}
    brief = SimpleNamespace(solo=lambda row, _: SimpleNamespace(tokens=tokens[row.request_id]))
    (stops,) = {row.stop for row in stopping(brief, rows)}
    found = {token for (token,) in stops}
    ends = [next((n for n, t in enumerate(o) if t in found), None) for o in outputs]
    return [token for (token,) in stops], ends


@pytest.mark.parametrize(
    ("outputs", "stops"),
    [
        ([(1, 2, 3), (4, 5, 5), (6, 7)], [6, 2]),  # the last row's first token, and one inside
        (OF_NEMOTRON, [169, 178]),
        ([(1, 2), (2, 1)], [2]),  # no row would be left
        ([(3, 4), (2, 2)], [2]),  # one is left, but not with a second token
    ],
)
def test_the_tokens_end_some_rows_and_not_all(outputs, stops):
    assert stops_and_ends(outputs)[0] == stops


@given(st.lists(st.lists(st.integers(1, 12), min_size=2, max_size=5), min_size=2, max_size=5))
def test_a_row_is_left_wherever_one_first_token_leaves_one(outputs):
    _, ends = stops_and_ends([tuple(output) for output in outputs])
    assert 0 in ends
    if any(first not in output for output in outputs for first in {o[0] for o in outputs}):
        assert None in ends
