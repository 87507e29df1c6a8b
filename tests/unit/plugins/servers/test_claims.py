"""What a server says of an answer is held to what came."""

import pytest

from conformance.core.schedule import Request
from conformance.plugins.servers.asking import Answer, Came
from conformance.plugins.servers.claims import about_answer, about_work, same_text, waited_for

REQUEST = Request("a", (1, 2, 3), 4)
USAGE = {"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 7}


def said(usage=USAGE, reason="length", ids=("x",), request=REQUEST, prompt=3, count=4):
    """The names of what does not hold."""
    answer = Answer("t1 t2 t3 t4", reason=reason, usage=usage, ids=set(ids))
    return [c.what for c in about_answer(request, answer, prompt, count) if not c.holds]


def test_a_right_answer_holds_all():
    assert said() == []


@pytest.mark.parametrize(
    ("change", "what"),
    [
        (
            {"usage": {**USAGE, "completion_tokens": 5, "total_tokens": 8}},
            "usage.completion_tokens",
        ),
        ({"usage": {**USAGE, "prompt_tokens": 2, "total_tokens": 6}}, "usage.prompt_tokens"),
        ({"usage": {**USAGE, "total_tokens": 8}}, "usage.total_tokens"),
        ({"usage": {}}, "usage"),
        ({"reason": None}, "finish_reason"),
        ({"reason": "done"}, "finish_reason"),
        ({"ids": ("x", "y")}, "ids of one answer"),
        ({"ids": ()}, "ids of one answer"),
    ],
)
def test_one_wrong_thing_is_named(change, what):
    assert said(**change) == [what]


def test_a_stop_sequence_may_be_counted_or_not():
    stopping = Request("a", (1, 2, 3), 9, stop=((7, 8),))
    for count, wrong in ((4, []), (6, []), (5, ["usage.completion_tokens"])):
        usage = {"prompt_tokens": 3, "completion_tokens": count, "total_tokens": 3 + count}
        assert said(usage, "stop", request=stopping) == wrong


def test_what_is_not_known_is_not_judged():
    assert said({**USAGE, "total_tokens": 7}, prompt=None, count=None) == []


def test_a_stream_has_the_text_of_one_piece():
    streamed = Answer("t1 t2 t3")
    for text, error, holds in (("t1 t2 t3 ", "", True), ("t1 t2", "", False), ("", "cut", False)):
        (claim,) = same_text(streamed, Came("a", Answer(text), ended=True, error=error))
        assert claim.holds is holds


@pytest.mark.parametrize(("waited", "holds"), [(0.5, True), (1.9, True), (40.0, False)])
def test_work_for_a_client_that_left_is_seen_by_who_waits(waited, holds):
    left = Answer("t1 t2 t3", sent=0.0, first=1.0, last=2.0)  # half a second for each token
    after = Answer("t1", sent=2.0, first=2.0 + waited)
    (claim,) = about_work({"a": left}, after, {"a": Request("a", (1,), 100)})
    assert claim.holds is holds


def test_nothing_is_said_of_a_short_rest():
    left = Answer("t1 t2 t3", sent=0.0, first=1.0, last=2.0)
    after = Answer("t1", sent=2.0, first=60.0)
    assert list(about_work({"a": left}, after, {"a": Request("a", (1,), 6)})) == []


@pytest.mark.parametrize(
    ("count", "rest", "seconds", "holds"),
    [
        (597, 597, 4.0, False),
        (597, 597, 0.5, True),
        (150, 597, 4.0, True),
        (24, 24, 4.0, True),
    ],
)
def test_who_joins_need_not_wait_for_the_end(count, rest, seconds, holds):
    assert waited_for(count, rest, seconds).holds is holds
