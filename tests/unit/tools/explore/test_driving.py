"""Each promise that an engine breaks is reported after the step in which it did."""

import pytest

from conformance.core.engine_options import EngineOptions
from conformance.core.schedule import Continuation, Request, Stage, Trigger
from conformance.core.verdict import Verdict
from conformance.tools.explore.driving import Drive, replay


@pytest.fixture
def drive(player):
    def start(engine="ContinuousBatching", **options):
        return Drive(player(engine), EngineOptions(**options))

    return start


def ask(drive, name, length=3, max_tokens=3, **more):
    prompt = drive._player.brief.prompt(length)
    return Request(name, prompt, max_tokens, **more)


def test_a_right_engine_keeps_them_all(drive):
    at_work = drive()
    at_work.insert([ask(at_work, "a"), ask(at_work, "b", 5)])
    at_work.step()
    at_work.step()
    assert set(at_work.live) == {"a", "b"}
    at_work.remove("a")
    at_work.insert([ask(at_work, "c")])
    at_work.finish()
    assert at_work.broken is None
    assert not at_work.suspect
    assert at_work.live == ()


def test_what_was_done_is_a_schedule_in_its_order(drive):
    at_work = drive()
    at_work.insert([ask(at_work, "a")])
    at_work.step()
    at_work.remove("a")
    at_work.insert([ask(at_work, "b")])
    at_work.step()
    at_work.insert([ask(at_work, "c")])
    schedule = at_work.schedule
    whens = [arrival.when for arrival in schedule.arrivals]
    assert whens == [Trigger(), Trigger("a", Stage.REMOVED), Trigger(count=2)]
    assert schedule.removals[0].when == Trigger(count=1)


def test_a_cache_can_be_taken_of_what_decodes_and_what_has_ended(drive):
    at_work = drive()
    at_work.insert([ask(at_work, "short", max_tokens=1), ask(at_work, "long", max_tokens=6)])
    assert at_work.sources() == ()
    for _ in range(3):
        at_work.step()
    assert {r.request_id: after for r, after in at_work.sources()} == {"short": None, "long": 1}


BROKEN = {
    "YieldsAfterFinish": (Verdict.PROTOCOL, "which is not live"),
    "YieldsForAStranger": (Verdict.PROTOCOL, "unknown uid 7"),
    "CallsEveryEndStop": (Verdict.PROTOCOL, "ends with stop"),
    "KeepsCache": (Verdict.LEAK, "bytes of cache are held"),
    "ComputesGhostRows": (Verdict.LEAK, "rows with"),
    "CrashesOnJoin": (Verdict.CRASH, "raised"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_promise_is_reported(drive, name):
    verdict, words = BROKEN[name]
    at_work = drive(name, prefill_step_size=4)
    at_work.insert([ask(at_work, "a", max_tokens=9), ask(at_work, "b", max_tokens=2)])
    for _ in range(2):
        at_work.step()
    at_work.insert([ask(at_work, "c", 12)])
    at_work.step()
    at_work.insert([ask(at_work, "d", 1)])
    at_work.remove("c")
    at_work.finish()
    assert at_work.broken is not None
    assert at_work.broken.verdict is verdict
    assert words in at_work.broken.what
    assert at_work.over
    assert replay(at_work._player, at_work.schedule) == at_work.broken


def test_calls_that_break_nothing_break_nothing_again(drive):
    at_work = drive()
    at_work.insert([ask(at_work, "a", max_tokens=6)])
    for _ in range(3):
        at_work.step()
    at_work.insert([ask(at_work, "b", continues=Continuation("a", 1))])
    at_work.remove("a")
    at_work.insert([ask(at_work, "c")])
    assert replay(at_work._player, at_work.schedule) is None


def test_a_cache_that_is_not_there_when_a_program_is_made_again_shows_nothing(drive):
    at_work = drive("CrashesOnJoin")
    at_work.insert([ask(at_work, "a"), ask(at_work, "b", continues=Continuation("a"))])
    assert replay(at_work._player, at_work.schedule) is None


def test_other_tokens_make_it_suspect_and_are_left_to_the_checks(drive):
    at_work = drive("JoinsOneOff")
    at_work.insert([ask(at_work, "a", max_tokens=5)])
    at_work.step()
    at_work.step()
    at_work.insert([ask(at_work, "b", 5)])
    at_work.finish()
    assert at_work.suspect
    assert at_work.broken is None


def test_an_engine_that_never_ends_is_reported(drive):
    at_work = drive("NeverEnds", completion_batch_size=1)
    at_work.insert([ask(at_work, "a"), ask(at_work, "b")])
    at_work.finish()
    assert at_work.broken.verdict is Verdict.HANG


def test_a_refusal_is_no_broken_promise(drive):
    at_work = drive("RefusesTwo")
    at_work.insert([ask(at_work, "a"), ask(at_work, "b")])
    at_work.finish()
    assert at_work.refused
    assert at_work.broken is None
