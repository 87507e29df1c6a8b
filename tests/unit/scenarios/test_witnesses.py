"""Each witness on a trace that has what it looks for, and on ones that just have it not."""

import pytest

from conformance.core.engine import Capability
from conformance.core.engine_options import EngineOptions
from conformance.core.phases import ForwardCall
from conformance.core.schedule import Arrival, Media, Request, Schedule, Stage
from conformance.core.trace import FinishReason, Mode, Step, StepOutput, TokenEvent, Trace
from conformance.scenarios import media as media_seen
from conformance.scenarios import witnesses as seen

Q, P, D, F, R = Stage.QUEUED, Stage.PREFILL, Stage.DECODE, Stage.FINISHED, Stage.REMOVED


def step(forwards="", processed=None, *, tokens="", ends="", removed=None, **stages):
    """One step; ``forwards`` as ``4x1 2x8``, ``tokens`` and ``ends`` as ids of one letter."""
    events = [
        TokenEvent(n, 1, finish_reason=FinishReason.LENGTH if n in ends else None) for n in tokens
    ]
    calls = tuple(ForwardCall(*map(int, call.split("x"))) for call in forwards.split())
    output = StepOutput(tuple(events), processed or {})
    return Step(0, stages, output, calls, removed_from=removed or {})


def trace(*steps, requests=3, slots=2):
    schedule = Schedule(
        "s",
        (Arrival(tuple(Request(f"r{i}", (1,), 2) for i in range(requests))),),
        options=EngineOptions(completion_batch_size=slots),
    )
    return Trace(schedule, Mode.FREE, steps)


def calls(*forwards):
    return trace(*(step(forward) for forward in forwards))


@pytest.mark.parametrize(
    ("witness", "yes", "no"),
    [
        (seen.rows_together(4), ("2x1", "4x1"), ("3x1", "4x8")),
        (seen.prefill_together(4), ("4x2",), ("4x1", "3x8")),
        (seen.one_row_calls(), ("1x8", "1x1"), ("1x8", "2x1")),
        (seen.one_row_calls(), ("1x1",), ()),
        (seen.leaves_early(), ("2x5", "4x1", "3x1"), ("2x5", "3x1", "3x1", "4x1")),
        (seen.leaves_early(), ("3x1", "2x7", "2x1"), ("8x7", "4x1")),
        (seen.waits_for_slot(), ("2x7", "2x1"), ("3x1",)),
        (seen.waits_for_slot(), ("1x1",), ()),
    ],
)
def test_witnesses_of_calls(witness, yes, no):
    assert witness.seen(calls(*yes))
    assert not witness.seen(calls(*no))


def test_one_prompt_is_in_pieces_not_several_prompts_in_one_each():
    pieces = [step("1x4", {"a": 4}), step("1x4", {"a": 4}), step("1x1", {"a": 1})]
    assert seen.chunks(3).seen(trace(*pieces))
    assert not seen.chunks(3).seen(trace(*pieces[1:]))
    assert not seen.chunks(3).seen(trace(*(step("1x4", {name: 4}) for name in "abc")))


def test_pieces_within_one_step_are_its_prefill_calls():
    assert seen.chunks(3).seen(trace(step("1x4 1x4 1x2 1x1")))
    assert not seen.chunks(3).seen(trace(step("1x4 1x4 1x1 1x1")))


def test_as_many_requests_as_slots_wait_for_none():
    assert not seen.waits_for_slot().seen(trace(step("2x1"), requests=2))


@pytest.mark.parametrize(
    ("forwards", "processed", "padded"),
    [
        ("4x22", {"a": 22, "b": 4, "c": 10, "d": 1}, 51),
        ("4x10", {"a": 10, "b": 10, "c": 10, "d": 10}, 0),
        ("2x2", {"a": 2, "b": 1}, 1),
        ("4x1", {"a": 1, "b": 1}, 0),
        ("4x1 1x8", {"a": 8}, 0),
        ("2x4 2x4", {"a": 4, "b": 3}, 9),
        ("2x4", {"a": 4, "b": 4, "c": 1}, 0),  # the last token of c, in a call of its own
        ("", {"a": 4}, 0),
    ],
)
def test_padded_positions_are_those_beyond_the_prompts(forwards, processed, padded):
    found = trace(step(forwards, processed))
    assert seen.padded_positions(found) == padded
    assert seen.padding().seen(found) is (padded > 0)
    assert seen.no_padding().seen(found) is (padded == 0)


def test_padding_of_one_step_is_not_made_up_for_by_another():
    found = trace(step("2x4", {"a": 4, "b": 1}), step("1x2", {"a": 9}))
    assert seen.padded_positions(found) == 3


@pytest.mark.parametrize(
    ("steps", "holds"),
    [
        # b waits while a, which has produced a token, decodes; then both decode.
        ([step(a=D, tokens="a"), step(a=D, b=Q, tokens="a"), step(a=D, b=D)], True),
        # The same, but a has produced nothing yet when b comes: both came together.
        ([step(a=D, b=Q), step(a=D, b=D)], False),
        # b waits until a is gone.
        ([step(a=D, tokens="a"), step(a=D, b=Q), step(a=F, b=D)], False),
        # b joins, but a third request than the one it waited for.
        ([step(a=D, tokens="a"), step(a=D, b=Q), step(a=F, b=D, c=D)], False),
        ([step(a=Q, b=Q), step(a=D, b=D)], False),
        ([], False),
    ],
)
def test_late_join(steps, holds):
    assert seen.late_join().seen(trace(*steps)) is holds


@pytest.mark.parametrize(
    ("witness", "holds"),
    [
        (seen.removed_from(D), True),
        (seen.removed_from(P), False),
        (seen.removed_from(D, among=3), True),
        (seen.removed_from(D, among=4), False),
    ],
)
def test_removed_from_counts_those_removed_and_those_that_stay(witness, holds):
    found = trace(step(a=D, b=D, c=D), step(a=R, b=D, c=D, removed={"a": D}))
    assert witness.seen(found) is holds


def test_the_name_of_a_removal_has_stage_and_number():
    assert seen.removed_from(D).name == "a removal in decode"
    assert seen.removed_from(P, among=4).name == "a removal in prefill among 4"


def beside(*steps, media=""):
    """Requests of 9, 4 and 9 tokens; those in ``media`` have an image."""
    requests = [
        Request(n, (1,) * length, 2, media=(Media("image", (4, 4)),) if n in media else ())
        for n, length in (("a", 9), ("b", 4), ("c", 9))
    ]
    return Trace(Schedule("s", (Arrival(tuple(requests)),)), Mode.FREE, steps)


def leaves(gone, stage, **left):
    """``gone`` is removed from ``stage``; whoever is left comes to its end."""
    return step(removed={gone: stage}, tokens="".join(left), ends="".join(left), **left)


WORKED = step(processed={"a": 4, "b": 0}, a=P, b=P)


@pytest.mark.parametrize(
    ("steps", "stage", "alone"),
    [
        ([WORKED, leaves("a", P, b=P)], P, {"b"}),
        ([WORKED, leaves("a", P, b=P)], D, set()),
        # All of the padding is done: the row that is left is like a single one.
        ([WORKED, step(processed={"a": 1}, a=P, b=P), leaves("a", P, b=P)], P, set()),
        # In decode nothing is too late.
        ([WORKED, step(processed={"a": 5}, a=P, b=P), leaves("a", D, b=D)], D, {"b"}),
        # The shorter of two, one of equal length.
        ([leaves("b", D, a=D)], D, set()),
        ([leaves("a", D, c=D)], D, set()),
        # Two are left; the one that is left was elsewhere; it never ends.
        ([leaves("a", D, b=D, c=D)], D, set()),
        ([leaves("a", P, b=D)], P, set()),
        ([step(removed={"a": D}, b=D, tokens="b")], D, set()),
    ],
)
def test_a_row_is_left_as_only_row_beside_the_place_of_a_longer_one(steps, stage, alone):
    found = beside(*steps)
    assert seen.last_rows_left(found, stage) == alone
    assert seen.longest_leaves(stage).seen(found) is bool(alone)


def test_a_row_that_is_left_as_only_row_is_known_by_its_media():
    with_media, text = (media_seen.last_row_left(P, media=media) for media in (True, False))
    steps = (WORKED, leaves("a", P, b=P))
    assert with_media.seen(beside(*steps, media="b"))
    assert not with_media.seen(beside(*steps, media="a"))
    assert text.seen(beside(*steps, media="a"))
    assert not text.seen(beside(*steps, media="b"))


def test_in_prefill_only_rows_that_share_a_pass_can_be_left_as_only_row():
    assert seen.longest_leaves(P).needs == {Capability.TOGETHER}
    assert seen.longest_leaves(D).needs == frozenset()


@pytest.mark.parametrize(
    ("steps", "holds"),
    [
        ([step(a=D), step(a=R, b=Q, removed={"a": D}), step(b=D, tokens="b", ends="b")], True),
        (
            [step(a=D), step(a=R, removed={"a": D}), step(b=Q), step(b=D, tokens="b", ends="b")],
            True,
        ),
        # It came before the removal.
        ([step(a=D, b=Q), step(a=R, b=D, removed={"a": D}), step(tokens="b", ends="b")], False),
        # It does not end.
        ([step(a=D), step(a=R, b=Q, removed={"a": D}), step(b=D, tokens="b")], False),
        # Nothing was removed.
        ([step(a=D), step(b=Q), step(b=D, tokens="b", ends="b")], False),
    ],
)
def test_follow_up(steps, holds):
    assert seen.follow_up().seen(trace(*steps)) is holds
