"""The event stream: each way to break it, planted one at a time in a right play."""

import dataclasses

import msgspec
import pytest
from miniatures.plays import Script

from conformance.checks.protocol import _finished, check_protocol
from conformance.core.schedule import Stage
from conformance.core.trace import Failure, FinishReason, TokenEvent
from conformance.core.verdict import Verdict


def found_in(script, **options):
    """(kind, request, run) of each finding; all must be ``protocol``."""
    findings = check_protocol(script.play(**options))
    assert all(f.verdict is Verdict.PROTOCOL and f.check == "protocol" for f in findings)
    assert all(f.expected and f.got and f.cause for f in findings)
    return [(f.what.partition(":")[0], f.request_id, f.mode) for f in findings]


def lose(take, name, index):
    moment, place = take.event(name, index)
    del moment.events[place]


def duplicate(take, name, index):
    moment, place = take.event(name, index)
    moment.events.insert(place, moment.events[place])


def late(take):
    moment, place = take.event("c", 1)
    take.moments[3].events.append(moment.events[place])


def stop_elsewhere(take):
    """After another token a free run may meet a stop sequence elsewhere."""
    take.change("a", 1, token=7, finish_reason=FinishReason.STOP)
    for _ in range(3):
        lose(take, "a", 2)


def say_nothing(take):
    for _ in range(3):
        lose(take, "b", 0)


def test_an_answer_may_leave_out_the_sequence_that_stopped_it_and_nothing_else():
    for stop, left_out, wrong in (((2, 3), 2, False), ((2, 3), 1, True), ((3,), 1, False)):
        played = Script().play()
        (*_, request) = played.schedule.requests
        want = dataclasses.replace(
            played.want[request.request_id], tokens=(1, 2, 3), finish_reason=FinishReason.STOP
        )
        got = dataclasses.replace(want, tokens=want.tokens[:-left_out])
        asked = msgspec.structs.replace(request, stop=(stop, (9,)))
        found = [what for what, *_ in _finished(played, played.traces[1], asked, got, want)]
        wanted = ["wrong number of tokens"] if wrong else []
        assert [what.partition(":")[0] for what in found] == wanted


FED, NUMBER, REASON = "tokens other than fed", "wrong number of tokens", "wrong finish reason"
AFTER, REMOVED = "a token after its removal, in step 3", "a removed request reports a finish"


@pytest.mark.parametrize(
    ("plant", "request_id", "forced", "free"),
    [
        (lambda take: lose(take, "b", 0), "b", {FED}, {NUMBER}),
        (lambda take: duplicate(take, "a", 1), "a", {FED}, {NUMBER}),
        (say_nothing, "b", {FED}, {REASON}),
        (late, "c", {FED, AFTER}, {AFTER}),
        (
            lambda take: take.change("c", 1, finish_reason=FinishReason.LENGTH),
            "c",
            {REMOVED},
            {REMOVED},
        ),
        (lambda take: take.change("c", 0, token=9), "c", {FED}, set()),
        (
            lambda take: take.change("b", 2, finish_reason=FinishReason.STOP),
            "b",
            {REASON},
            {REASON},
        ),
        (lambda take: take.change("b", 2, finish_reason=None), "b", {REASON}, {REASON}),
        (
            lambda take: take.moments[2].events.append(TokenEvent("unknown uid 9", 3)),
            None,
            {"a token for unknown uid 9 in step 2"},
            {"a token for unknown uid 9 in step 2"},
        ),
        (stop_elsewhere, "a", {FED}, set()),
    ],
)
def test_what_breaks_the_protocol_of_each_run(plant, request_id, forced, free):
    for take, wanted in (("forced", forced), ("free", free)):
        script = Script()
        plant(getattr(script, take))
        found = found_in(script)
        assert {what for what, _, _ in found} == wanted
        assert {(name, mode) for _, name, mode in found} <= {(request_id, take)}


@pytest.mark.parametrize("word", [lambda _: "", "word{}".format])
def test_an_answer_that_ends_elsewhere_is_said_to_go_on_or_to_end_there(word):
    script = Script()
    lost, more = script.want["a"].tokens[4], script.want["b"].tokens[2]
    lose(script.free, "a", 4)
    short = script.want["b"].tokens[:2]
    script.want["b"] = dataclasses.replace(script.want["b"], tokens=short)
    found = check_protocol(script.play(word=word))
    a, b = (finding for finding in found if finding.mode == "free")
    places = ((4, lost), (2, more))
    names = [f"word {n}, {word(t)!r}," if word(t) else f"output token {n}, {t}," for n, t in places]
    assert (a.what, a.step) == (
        f"wrong finish reason: the answer ends before {names[0]} of the single stream",
        4,
    )
    assert (b.what, b.step) == (
        f"wrong number of tokens: {names[1]} comes after the end of the single stream",
        2,
    )


def test_a_token_after_the_finish():
    script = Script()
    script.free.moments[4].events.append(TokenEvent("b", 2))
    found = found_in(script, full_logprobs=False)
    assert ("a token after its finish, in step 4", "b", "free") in found


def test_logprobs_with_some_tokens_only():
    script = Script()
    script.free.change("a", 3, logprobs=None)
    assert found_in(script) == [("events without logprobs", "a", "free")]
    assert found_in(script, full_logprobs=False) == []


def test_a_stop_that_is_passed_over_is_no_other_answer():
    script = Script()
    script.want["b"] = dataclasses.replace(script.want["b"], finish_reason=FinishReason.STOP)
    script.free.moments[4].events.append(TokenEvent("b", 2, finish_reason=FinishReason.LENGTH))
    script.free.change("b", 2, finish_reason=None)
    found = found_in(script, full_logprobs=False)
    assert ("wrong finish reason", "b", "free") in found


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
