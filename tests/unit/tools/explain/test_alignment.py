"""Whose tokens the rows of a pass hold."""

import numpy as np
import pytest

from conformance.core.schedule import Stage
from conformance.core.trace import Step, StepOutput
from conformance.tools.explain.alignment import Alignment, Span

SEQUENCES = {"a": (5, 6, 7, 8), "b": (9, 9, 3), "c": (1, 2)}


def step(index=0, rows=None, processed=None, drafted=None, **stages):
    """A step in which the named requests are live."""
    stages = {name: Stage[stage.upper()] for name, stage in stages.items()}
    output = StepOutput(processed=processed or {}, drafted=drafted or {})
    return Step(index, stages, output, rows=rows or {})


def spans(alignment, tokens, at=None):
    """The rows that fit."""
    return alignment.rows(np.array(tokens), at)[0]


def test_padding_on_either_side():
    left = spans(Alignment(SEQUENCES), [[5, 6, 7], [0, 9, 9], [0, 1, 2]])
    assert left == (Span(0, "a", 0, 3, 0), Span(1, "b", 1, 2, 0), Span(2, "c", 1, 2, 0))
    right = spans(Alignment(SEQUENCES), [[9, 9, 0], [5, 6, 7]])
    assert right == (Span(0, "b", 0, 2, 0), Span(1, "a", 0, 3, 0))


def test_each_pass_goes_on_where_the_one_before_ended():
    alignment = Alignment(SEQUENCES)
    spans(alignment, [[5, 6], [0, 9]])
    assert spans(alignment, [[7], [9]]) == (Span(0, "a", 0, 1, 2), Span(1, "b", 0, 1, 1))
    assert alignment.done == {"a": 3, "b": 2}


def test_between_two_candidates_the_engine_s_rows_decide():
    alike = {"a": (4, 4), "b": (4, 4)}
    decoding = step(rows={"b": 0, "a": 1}, a="decode", b="decode")
    found = spans(Alignment(alike), [[4], [4]], decoding)
    assert [span.request_id for span in found] == ["b", "a"]


def test_a_row_decodes_once_in_a_step_then_others_have_their_turn():
    alignment = Alignment({"old": (4, 4, 4), "new": (4,)})
    at = step(rows={"old": 0}, old="decode", new="prefill")
    assert [span.request_id for span in spans(alignment, [[4]], at)] == ["old"]
    assert [span.request_id for span in spans(alignment, [[4]], at)] == ["new"]


def test_what_goes_on_from_a_cache_begins_after_it_or_one_token_before():
    for tokens, first in (([[7, 8]], 2), ([[6, 7, 8]], 1)):
        found = spans(Alignment(SEQUENCES, {"a": 2}), tokens)
        assert found[0].position == first


def test_who_has_ended_is_not_meant():
    assert spans(Alignment(SEQUENCES), [[1]], step(c="removed", a="decode")) == ()


def test_a_row_that_is_fed_something_else_is_reported():
    alignment = Alignment(SEQUENCES)
    at = step(rows={"a": 0, "b": 1}, a="decode", b="decode")
    fitting, strange = alignment.rows(np.array([[5], [7]]), at)
    assert [span.request_id for span in fitting] == ["a"]
    (found,) = strange
    assert (found.row, found.request_id, found.expected, found.got) == (1, "b", (9,), (7,))


def test_a_prompt_that_is_fed_something_else_is_reported():
    at = step(processed={"a": 2}, a="prefill")
    _, strange = Alignment(SEQUENCES).rows(np.array([[6, 6]]), at)
    assert [(found.request_id, found.expected) for found in strange] == [("a", (5, 6))]


def test_a_row_past_its_end_is_not_strange():
    alignment = Alignment({"a": (5,)})
    alignment.rows(np.array([[5]]), step(rows={"a": 0}, a="decode"))
    _, strange = alignment.rows(np.array([[3]]), step(1, rows={"a": 0}, a="decode"))
    assert strange == ()


def test_a_token_that_is_fed_again_is_no_padding():
    alignment = Alignment(SEQUENCES)
    alignment.rows(np.array([[5, 6]]), step(processed={"a": 2}, a="prefill"))
    fitting, strange = alignment.rows(np.array([[6, 7]]), step(1, processed={"a": 2}, a="prefill"))
    assert fitting == ()
    assert [(found.position, found.expected) for found in strange] == [(2, (7, 8))]


@pytest.mark.parametrize("fed", [(6, 7), (7, 8)])
def test_another_piece_of_a_prompt_is_reported_beside_rows_that_only_pad(fed):
    sequences = {"a": (5, 6, 7, 8, 4), "b": (9, 3)}
    alignment = Alignment(sequences)
    first = step(processed={"a": 1}, a="prefill", b="prefill")
    alignment.rows(np.array([[0, 5], [0, 0]]), first)
    again = step(1, processed={"a": 2}, a="prefill", b="prefill")
    fitting, strange = alignment.rows(np.array([list(fed), [0, 0]]), again)
    reported = [(found.request_id, found.position, found.expected) for found in strange]
    assert reported == ([] if fed == (6, 7) else [("a", 1, (6, 7))])
    assert len(fitting) == (fed == (6, 7))


def test_what_was_accepted_may_be_fed_again():
    alignment = Alignment({"a": (5, 5, 5, 6)})
    at = step(rows={"a": 0}, drafted={"a": 2}, a="decode")
    assert spans(alignment, [[5, 5, 9]], at) == (Span(0, "a", 0, 2, 0),)
    assert alignment.rows(np.array([[5, 5]]), at) == ((), ())
    assert alignment.done == {"a": 2}


def test_of_two_that_could_be_meant_each_stays_in_its_row():
    alignment = Alignment({"a": (1, 4), "b": (2, 4)})
    spans(alignment, [[2], [1]])
    assert [span.request_id for span in spans(alignment, [[4], [4]])] == ["b", "a"]


# An engine with fixed slots computes more rows than there are requests ---------------------------


@pytest.mark.parametrize("idle", [5, 9, 0, 77])
def test_what_is_in_an_idle_slot_belongs_to_nobody(idle):
    alignment = Alignment(SEQUENCES)
    at = step(rows={"a": 1, "b": 3}, a="decode", b="decode")
    fitting, strange = alignment.rows(np.array([[idle], [5], [idle], [9]]), at)
    assert [(span.row, span.request_id) for span in fitting] == [(1, "a"), (3, "b")]
    assert strange == ()


@pytest.mark.parametrize("idle", [5, 0, 77])
def test_a_slot_that_is_fed_something_else_is_reported_among_idle_ones(idle):
    alignment = Alignment(SEQUENCES)
    at = step(rows={"a": 1, "b": 3}, a="decode", b="decode")
    fitting, strange = alignment.rows(np.array([[idle], [6], [idle], [9]]), at)
    assert [(span.row, span.request_id) for span in fitting] == [(3, "b")]
    assert [(one.row, one.request_id, one.expected, one.got) for one in strange] == [
        (1, "a", (5,), (6,))
    ]


def test_a_prompt_s_last_token_beside_decoding_rows_is_not_taken_for_theirs():
    alignment = Alignment({"old": (4, 4), "new": (8,), "newer": (9,)})
    at = step(rows={"old": 0}, old="decode", new="prefill", newer="prefill")
    fitting, strange = alignment.rows(np.array([[8], [9]]), at)
    assert [(span.row, span.request_id) for span in fitting] == [(0, "new"), (1, "newer")]
    assert strange == ()
