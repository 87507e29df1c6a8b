"""The event stream: each way to break it, planted one at a time in a right play."""

import dataclasses

import pytest
from miniatures.plays import NOISE, Script

from conformance.checks.protocol import check_protocol
from conformance.core.schedule import Stage
from conformance.core.trace import Failure, FinishReason, TokenEvent
from conformance.core.verdict import Verdict


def found_in(script, **options):
    """(what, request, run) of each finding; all must be ``protocol``."""
    findings = check_protocol(script.play(**options))
    assert all(f.verdict is Verdict.PROTOCOL and f.check == "protocol" for f in findings)
    assert all(f.expected and f.got and f.cause for f in findings)
    return [(f.what, f.request_id, f.mode) for f in findings]


def lose(take, name, index):
    moment, place = take.event(name, index)
    del moment.events[place]


def test_a_right_play_has_no_finding():
    assert found_in(Script()) == []


def test_a_lost_first_token():
    script = Script()
    lose(script.forced, "b", 0)
    assert found_in(script) == [("tokens other than fed", "b", "forced")]


def test_a_lost_first_token_in_a_free_run():
    script = Script()
    lose(script.free, "b", 0)
    assert found_in(script) == [("wrong number of tokens", "b", "free")]


def test_a_duplicated_token():
    script = Script()
    for take in (script.forced, script.free):
        moment, place = take.event("a", 1)
        moment.events.insert(place, moment.events[place])
    assert found_in(script) == [
        ("tokens other than fed", "a", "forced"),
        ("wrong number of tokens", "a", "free"),
    ]


def test_a_token_after_the_finish():
    script = Script()
    script.free.moments[4].events.append(TokenEvent("b", 2))
    found = found_in(script, full_logprobs=False)
    assert ("a token after its finish, in step 4", "b", "free") in found


def test_a_token_after_the_removal():
    script = Script()
    moment, place = script.free.event("c", 1)
    script.free.moments[3].events.append(moment.events[place])
    assert found_in(script) == [("a token after its removal, in step 3", "c", "free")]


def test_a_finish_reason_for_a_removed_request():
    script = Script()
    script.forced.change("c", 1, finish_reason=FinishReason.LENGTH)
    assert ("a removed request reports a finish", "c", "forced") in found_in(script)


def test_other_tokens_than_fed_before_a_removal():
    script = Script()
    script.forced.change("c", 0, token=script.want["c"].tokens[0] ^ 1)
    assert found_in(script) == [("tokens other than fed", "c", "forced")]


@pytest.mark.parametrize("take", ["forced", "free"])
def test_a_wrong_finish_reason(take):
    script = Script()
    getattr(script, take).change("b", 2, finish_reason=FinishReason.STOP)
    assert found_in(script) == [("wrong finish reason", "b", take)]


def test_no_finish_at_all():
    script = Script()
    script.free.change("b", 2, finish_reason=None)
    assert found_in(script) == [("wrong finish reason", "b", "free")]


def test_a_token_for_an_id_that_nobody_has():
    script = Script()
    script.forced.moments[2].events.append(TokenEvent("unknown uid 9", 3))
    assert found_in(script) == [("a token for unknown uid 9 in step 2", None, "forced")]


def test_logprobs_with_some_tokens_only():
    script = Script()
    script.free.change("a", 3, logprobs=None)
    assert found_in(script) == [("events without logprobs", "a", "free")]
    assert found_in(script, full_logprobs=False) == []


def test_other_tokens_in_a_free_run_are_not_this_checks_business():
    script = Script(margins={1: NOISE})
    script.free.change("a", 1, token=7)
    assert found_in(script) == []


def test_after_another_token_a_free_run_may_meet_a_stop_sequence_elsewhere():
    script = Script()
    script.free.change("a", 1, token=7, finish_reason=FinishReason.STOP)
    for _ in range(3):
        lose(script.free, "a", 2)
    assert found_in(script) == []


@pytest.mark.parametrize("reason", [FinishReason.STOP, None])
def test_an_answer_cut_short_with_another_reason_is_no_other_answer(reason):
    script = Script()
    for _ in range(2):
        lose(script.free, "a", 3)
    script.free.change("a", 2, finish_reason=reason)
    assert found_in(script) == [("wrong finish reason", "a", "free")]


def test_a_stop_that_is_passed_over_is_no_other_answer():
    script = Script()
    script.want["b"] = dataclasses.replace(script.want["b"], finish_reason=FinishReason.STOP)
    script.free.moments[4].events.append(TokenEvent("b", 2, finish_reason=FinishReason.LENGTH))
    script.free.change("b", 2, finish_reason=None)
    found = found_in(script, full_logprobs=False)
    assert ("wrong finish reason", "b", "free") in found


def test_a_request_that_says_nothing_is_missed():
    script = Script()
    for take in (script.forced, script.free):
        for _ in range(3):
            lose(take, "b", 0)
    assert found_in(script) == [
        ("tokens other than fed", "b", "forced"),
        ("wrong finish reason", "b", "free"),
    ]


def test_a_request_that_never_arrived_is_not_asked_for():
    script = Script()
    for take in (script.forced, script.free):
        for moment in take.moments:
            moment.events = [e for e in moment.events if e.request_id != "b"]
            del moment.stages["b"]
    assert found_in(script) == []


def test_runs_without_an_end_are_left_to_the_check_of_failures():
    script = Script()
    for take in (script.forced, script.free):
        lose(take, "b", 0)
    script.forced.failure = Failure("E", "m", "f:1", "step 1")
    script.free.out_of_steps = True
    assert found_in(script) == []


def test_a_removal_that_is_seen_only_in_the_stages_counts():
    """The engine may emit events in the step of the removal, but in no later one."""
    script = Script()
    for moment in script.forced.moments[1:]:
        moment.stages["b"] = Stage.REMOVED
    found = found_in(script)
    assert ("a token after its removal, in step 1", "b", "forced") in found


def test_a_request_may_come_to_its_end_before_its_removal():
    """It then had all its tokens, and the removal is of something that is gone."""
    script = Script()
    for take in (script.forced, script.free):
        late = script.want["c"]
        for moment, step in zip(take.moments[3:], (2, 3, 4), strict=False):
            reason = FinishReason.LENGTH if step == 4 else None
            moment.events.append(
                TokenEvent("c", late.tokens[step], late.logprobs[step], -1.0, reason)
            )
        for moment in take.moments[1:]:
            moment.stages["c"] = Stage.DECODE
    assert found_in(script) == []
