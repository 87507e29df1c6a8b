"""What a server says of an answer is held to what came."""

import pytest

from conformance.core.engine_options import EngineOptions
from conformance.core.phases import ForwardCall, ServedStep
from conformance.core.schedule import Asked, Request
from conformance.plugins.servers.answers import Answer
from conformance.plugins.servers.asking import Came
from conformance.plugins.servers.claims import (
    Left,
    about_answer,
    about_end_tokens,
    about_ending,
    about_kept,
    about_limits,
    about_maker,
    about_swap,
    about_work,
    same_text,
    waited_for,
)
from conformance.plugins.servers.entries import about_logprobs
from conformance.plugins.servers.planting import Kept

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
        (
            {"usage": {**USAGE, "prompt_tokens": 0, "total_tokens": 4}, "prompt": 0},
            "usage.prompt_tokens",
        ),
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


def test_each_of_several_stop_sequences_may_be_counted():
    stopping = Request("a", (1, 2, 3), 9, stop=((7, 8), (1, 2, 3)))
    for count, wrong in ((4, []), (6, []), (7, []), (5, ["usage.completion_tokens"])):
        usage = {"prompt_tokens": 3, "completion_tokens": count, "total_tokens": 3 + count}
        assert said(usage, "stop", request=stopping) == wrong


def test_what_is_not_known_is_not_judged():
    assert said({**USAGE, "total_tokens": 7}, prompt=None, count=None) == []


def test_a_stream_has_the_text_of_one_piece():
    streamed = Answer("t1 t2 t3")
    for text, error, holds in (("t1 t2 t3 ", "", True), ("t1 t2", "", False), ("", "cut", False)):
        (claim,) = same_text(streamed, Came("a", Answer(text), ended=True, error=error))
        assert claim.holds is holds


def left(last=2.0, long=1200):
    """A client that left after three tokens of a long answer, and the request that it had."""
    answer = Answer("t1 t2 t3", sent=0.0, first=1.0, last=last)
    return {"a": Left(answer, {"a": 3, "clock": 10})}, {"a": Request("a", (1,), long)}


@pytest.mark.parametrize(
    ("steps", "waited", "holds"),
    [
        (3, 0.5, True),
        (3, 60.0, True),  # a machine that does something else meanwhile
        (900, 0.4, True),  # one that is so fast that half a second is most of it
        (900, 3.0, False),
    ],
)
def test_work_for_a_client_that_left_is_counted_by_who_decodes_beside(steps, waited, holds):
    gone, requests = left()
    after = Answer("t1", sent=2.0, first=2.0 + waited, at_first={"clock": 10 + steps})
    (claim,) = about_work(gone, after, requests)
    assert claim.holds is holds
    assert claim.said == str(steps)


def test_nothing_is_said_of_a_short_rest():
    gone, requests = left(long=60)
    after = Answer("t1", sent=2.0, first=60.0, at_first={"clock": 99})
    assert list(about_work(gone, after, requests)) == []


@pytest.mark.parametrize(("count", "holds"), [(3990, False), (2500, True), (4, True)])
def test_who_joins_need_not_wait_for_the_end(count, holds):
    after = Answer("t1", at_sending={"long": 8}, at_first={"long": 8 + count})
    (claim,) = waited_for(after, "long", 4000)
    assert claim.holds is holds


def test_who_joins_a_short_answer_is_not_judged():
    after = Answer("t1", at_sending={"long": 8}, at_first={"long": 200})
    assert list(waited_for(after, "long", 200)) == []


def entry(token, logprob=-1.0, *tops):
    return {"token": token, "logprob": logprob, "top_logprobs": [{"logprob": t} for t in tops]}


@pytest.mark.parametrize(
    ("entries", "wrong"),
    [
        ([entry(" t1"), entry("t2", -1.0, -1.0, -2.0)], []),
        ([entry("t1"), entry("t3")], ["tokens of the logprobs"]),
        ([entry("t1"), entry("t2", -1.0, -2.0, -1.0)], ["order of the top logprobs"]),
        ([entry(None), entry(None)], []),
        ([entry("t1")], []),
    ],
)
def test_logprobs_are_of_the_tokens_that_came(entries, wrong):
    assert wrong_in(entries) == wrong


def wrong_in(entries, request=REQUEST, *, bare=False):
    answer = Answer(text="t1 t2", entries=entries, bare=bare)
    return [c.what for c in about_logprobs(request, answer) if not c.holds]


def with_tops(token, logprob, **tops):
    listed = [{"token": name, "logprob": own} for name, own in tops.items()]
    return {"token": token, "logprob": logprob, "top_logprobs": listed}


def test_an_answer_that_is_to_have_no_logprobs_has_none():
    assert wrong_in([], bare=True) == []
    assert wrong_in([entry("t1")], bare=True) == ["logprobs, unasked"]


AMONG = "logprob of a token among its top_logprobs"


@pytest.mark.parametrize(
    ("second", "wrong"),
    [
        (with_tops(" t2", -1.0, t2=-1.0, t9=-2.0), []),
        (with_tops("t2", -3.0, t8=-1.0, t9=-2.0), []),
        (with_tops("t2", -1.0, t2=-1.5, t9=-2.0), [AMONG]),
        (with_tops("t2", -1.0, t8=-0.5, t9=-2.0), [AMONG]),
        ({"token": "t2", "logprob": -1.0}, ["tokens with top_logprobs"]),
    ],
)
def test_the_likeliest_tokens_are_those_of_the_token_that_came(second, wrong):
    asked = Request("a", (1, 2, 3), 4, asked=Asked(fields={"top_logprobs": 2}))
    assert wrong_in([with_tops("t1", -1.0, t1=-1.0, t3=-4.0), second], asked) == wrong


def test_logprobs_that_were_asked_for_by_number_come():
    asked = Request("a", (1, 2, 3), 4, asked=Asked(fields={"top_logprobs": 2}))
    assert wrong_in([], asked) == ["tokens with top_logprobs"]
    assert wrong_in([]) == []


def test_usage_that_was_not_asked_for_may_be_missing():
    options = Request("a", (1, 2, 3), 4, asked=Asked(fields={"stream_options": {}}))
    assert said({}, request=options) == []
    whole = Request("a", (1, 2, 3), 4, asked=Asked(streamed=False, fields={"stream_options": {}}))
    assert said({}, request=whole) == ["usage"]


def broken(claims):
    return [claim.what for claim in claims if not claim.holds]


@pytest.mark.parametrize(
    ("calls", "what"),
    [
        (((3, 1), (2, 4)), []),
        (((4, 1),), ["rows decoded at once, of a limit"]),
        (((3, 4),), ["prompts computed at once, of a limit"]),
        (((1, 5),), ["tokens of a prompt's piece, of a limit"]),
    ],
)
def test_more_at_once_than_a_server_was_started_for_is_found(calls, what):
    steps = [ServedStep(tuple(ForwardCall(*call) for call in calls), 0)]
    options = EngineOptions(prefill_step_size=4, prefill_batch_size=2, completion_batch_size=3)
    assert broken(about_limits(steps, options, prompts=True)) == what
    assert "prompts computed" not in str(broken(about_limits(steps, options, prompts=False)))


def test_more_that_is_kept_than_may_be_is_found():
    """The last answer's caches may be there before the limit is looked at."""
    assert not broken(about_kept([Kept(2, 30, 10)], 2, 20))
    assert broken(about_kept([Kept(3, 30, 10)], 2, 20)) == ["prompts kept, of a limit"]
    assert broken(about_kept([Kept(2, 31, 10)], 2, 20)) == ["bytes of prompts kept, of a limit"]
    assert not broken(about_kept([Kept(2, 999, 0)], 2, None))


def test_a_model_that_is_kept_after_another_replaced_it_is_found():
    assert about_swap("own", 1000, 1200).holds
    assert not about_swap("own", 1000, 1900).holds


@pytest.mark.parametrize(
    ("ids", "models", "wrong"),
    [
        ("b", "m", []),
        ("a", "m", ["answers with an id"]),
        ("b", "n", ["the model of an answer"]),
        ("a", "", []),  # of a client that does not pass them on
    ],
)
def test_an_answer_has_an_id_of_its_own_and_names_its_model(ids, models, wrong):
    answer, before = Answer(ids={*ids}, models={*models}), Answer(ids={"a"}, models={"m"})
    assert [c.what for c in about_maker(REQUEST, answer, [before], "m") if not c.holds] == wrong


@pytest.mark.parametrize(("count", "holds"), [(2, True), (4, True), (3, False), (5, False)])
def test_what_ended_an_answer_counts_as_a_whole_or_not_at_all(count, holds):
    answer = Answer(usage={"completion_tokens": count})
    assert about_ending(REQUEST, answer, (5, 6, 7, 8), 2).holds is holds


@pytest.mark.parametrize(
    ("counted", "wrong"),
    [({}, 0), ({"a": 1, "b": 1}, 0), ({"a": 0, "b": 0}, 0), ({"a": 0, "b": 1}, 1)],
)
def test_an_end_token_counts_in_all_answers_or_in_none(counted, wrong):
    assert sum(not claim.holds for claim in about_end_tokens(counted)) == wrong
