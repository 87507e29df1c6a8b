"""How often a schedule is played, and how."""

from contextlib import nullcontext
from types import SimpleNamespace

import msgspec
import numpy as np
import pytest
from miniatures.library import TiedLibrary, subject
from miniatures.right import ContinuousBatching
from miniatures.wrong import DriftsALittle, NanInPadding, RoundsOtherwise, SaysUnsupported

from conformance.core import numerics
from conformance.core.engine_options import Drafting, EngineOptions
from conformance.core.numerics import Envelope
from conformance.core.rounds import hints_of
from conformance.core.schedule import Arrival, Continuation, Media, Removal, Request, Schedule
from conformance.core.trace import Mode
from conformance.run.judging.judge import brief_for
from conformance.run.judging.playing import _dtypes, _Noise, play_schedule
from conformance.scenarios import LADDER
from conformance.scenarios.build import produced, text_request, together


@pytest.fixture(scope="module")
def toy():
    """One subject for all: its single streams are made once."""
    return subject()


def one_schedule(toy, engine=ContinuousBatching):
    brief = brief_for(toy, engine, 0)
    return Schedule("pair", (together(text_request(brief, "a", 5), text_request(brief, "b", 11)),))


def test_the_first_run_is_made_again_where_the_two_differ():
    tied = subject(TiedLibrary())
    played = play_schedule(tied, RoundsOtherwise, one_schedule(tied, RoundsOtherwise))
    assert [trace.mode for trace in played.traces] == [Mode.FORCED, Mode.FREE, Mode.FORCED]


def test_with_a_drafter_both_runs_are_free_and_the_engine_gets_the_hints(toy):
    hints = []

    class Drafts(ContinuousBatching):
        def insert(self, submissions):
            hints.append({s.request.request_id: s.hints for s in submissions})
            super().insert(submissions)

    schedule = one_schedule(toy, Drafts)
    options = msgspec.structs.replace(schedule.options, drafting=Drafting("kind"))
    played = play_schedule(toy, Drafts, msgspec.structs.replace(schedule, options=options))
    assert [trace.mode for trace in played.traces] == [Mode.FREE, Mode.FREE]
    assert not played.full_logprobs
    given = {name: hints_of(want, toy.family.tokens) for name, want in played.want.items()}
    assert hints == [given] * 2


def test_a_run_that_failed_is_not_made_again(toy):
    scenario = next(s for s in LADDER if s.name == "window")
    schedule = scenario.make(brief_for(toy, SaysUnsupported, 0))[0]
    assert len(play_schedule(toy, SaysUnsupported, schedule).traces) == 1


def test_the_noise_is_not_measured_where_the_floor_explains_all():
    fresh = subject()
    play_schedule(fresh, ContinuousBatching, one_schedule(fresh), once=True)
    assert fresh.library.passes == 0
    play_schedule(fresh, DriftsALittle, one_schedule(fresh), once=True)
    assert fresh.library.passes > 0


def test_a_row_whose_difference_is_typical_of_others_is_not_measured_itself():
    measured = []

    def wider(request, options, schedule, *, steps):
        def measure():
            measured.append(request.request_id)
            return Envelope(np.float32([1e-4] * 3), np.float32([1e-4] * 3), 1e-6)

        return (measure,)

    rows = (Request("a", (1,), 3), Request("b", (2,), 3), Request("c", (3,), 3))
    oracle = SimpleNamespace(wider=wider)
    judged = SimpleNamespace(oracle=oracle, phases=lambda name: nullcontext())
    noise = _Noise(judged, Schedule("s", (together(*rows),)), {})
    floor = numerics.flat_envelope(3, 1e-6)

    def settled(name, off):
        want = np.log(np.full((3, 4), 0.25, np.float32))
        return numerics.settle(
            lambda envelope: numerics.deviation(want + np.float32(off), want, envelope),
            floor,
            noise.wider(name, 3),
        )[0]

    assert settled("a", 9e-5).within_noise
    assert settled("b", 9e-5).within_noise
    assert measured == ["a"]  # the first had no others
    assert settled("c", 1.5e-4).within_noise
    assert measured == ["a", "c"]  # more than typical
    assert not settled("b", 5e-4).within_noise
    assert measured == ["a", "c", "b"]


def test_a_further_schedule_that_follows_the_oracle_is_played_once_and_free(toy):
    played = play_schedule(toy, ContinuousBatching, one_schedule(toy), once=True)
    assert [trace.mode for trace in played.traces] == [Mode.FREE]


def test_a_further_schedule_that_leaves_the_oracle_is_played_like_the_first(toy):
    twice = play_schedule(toy, NanInPadding, one_schedule(toy, NanInPadding))
    played = play_schedule(toy, NanInPadding, one_schedule(toy, NanInPadding), once=True)
    assert [trace.mode for trace in played.traces] == [trace.mode for trace in twice.traces]
    assert played.traces[0].mode is Mode.FORCED


def with_a_removal(toy):
    """The second of two rows leaves when the first has two tokens."""
    brief = brief_for(toy, ContinuousBatching, 0)
    rows = [
        text_request(brief, name, length, max_tokens=12)
        for name, length in (("stays", 5), ("leaves", 9))
    ]
    return Schedule("one_leaves", (together(*rows),), (Removal(("leaves",), produced("stays", 2)),))


class IgnoresRemovals(ContinuousBatching):
    def remove(self, request_ids):
        pass


@pytest.mark.parametrize(
    ("engine", "once", "known"),
    [
        (ContinuousBatching, True, 4),
        (ContinuousBatching, False, 12),  # a forced run is fed all of them
        (NanInPadding, True, 12),  # so is one after a free run that differs
        (IgnoresRemovals, True, 12),  # a run that goes on is compared to its end
    ],
)
def test_of_a_removed_request_no_more_is_decoded_alone_than_a_run_may_reach(engine, once, known):
    fresh = subject()
    fresh.oracle.least = 0
    played = play_schedule(fresh, engine, with_a_removal(fresh), once=once)
    assert {name: len(stream.tokens) for name, stream in played.want.items()} == {
        "stays": 12,
        "leaves": known,
    }
    assert len(played.floor("leaves").full) == known


def test_one_that_goes_on_has_those_of_a_text_of_its_own():
    """It has no single stream by itself; an image has other dtypes than text."""
    rows = (
        Request("more", (1,), 1, continues=Continuation("text")),
        Request("image", (2,), 1, media=(Media("image", (4, 4), 0, (0, 1)),)),
        Request("text", (3,), 1),
    )
    asked = []
    oracle = SimpleNamespace(
        dtypes=lambda request, _: asked.append(request.request_id) or ((request.request_id,),)
    )
    subject = SimpleNamespace(oracle=oracle, phases=lambda _: nullcontext())
    trace = SimpleNamespace(steps=[SimpleNamespace(layers=("some",))])
    schedule = Schedule("s", (Arrival(rows),), options=EngineOptions())
    found = _dtypes(subject, schedule, trace)
    assert found == {"more": (("text",),), "image": (("image",),), "text": (("text",),)}
    assert "more" not in asked
