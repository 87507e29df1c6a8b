"""A model that drafts for itself accepts its own drafts, except at a tie."""

import dataclasses

import msgspec
import pytest
from miniatures.plays import NOISE, VOCAB, stream

from conformance.checks import Play
from conformance.checks.drafts import ITSELF, check_drafts
from conformance.core.engine_options import Drafting, EngineOptions
from conformance.core.numerics import FACTOR, flat_envelope
from conformance.core.schedule import Arrival, Request, Schedule
from conformance.core.token_choice import Processor, Sampler
from conformance.core.trace import FinishReason, Mode, Step, StepOutput, TokenEvent, Trace
from conformance.core.verdict import Verdict

REQUEST = Request("a", (1, 2), 7)
OWN = Drafting(ITSELF, 4)


def play(*given, drafting=OWN, request=REQUEST, margins=None, instead=None):
    """Drafts of three tokens for ``a``, after each of which so many tokens came.

    ``instead`` maps an output token to another one.
    """
    want = stream(0, VOCAB - 1, margins=margins)
    tokens = [(instead or {}).get(index, token) for index, token in enumerate(want.tokens)]
    steps, said = [], 0
    for count in given:
        events = []
        for token in tokens[said : said + count]:
            said += 1
            ends = FinishReason.LENGTH if said == request.max_tokens else None
            events.append(TokenEvent("a", token, None, None, ends))
        steps.append(Step(len(steps), {}, StepOutput(tuple(events), drafted={"a": 3})))
    schedule = Schedule("s", (Arrival((request,)),), options=EngineOptions(drafting=drafting))
    return Play(
        schedule,
        (Trace(schedule, Mode.FREE, tuple(steps)),),
        {"a": dataclasses.replace(want)},
        floor=lambda _: flat_envelope(VOCAB, NOISE),
        envelope=lambda _: flat_envelope(VOCAB, NOISE),
        wider=lambda *_: [lambda: flat_envelope(VOCAB, NOISE)],
    )


def test_drafts_that_are_accepted_whole_are_right():
    assert check_drafts(play(4, 3)) == []


def test_a_rejected_draft_is_reported_with_the_token_that_it_missed():
    (found,) = check_drafts(play(4, 2))
    assert (found.verdict, found.check, found.request_id) == (Verdict.DRIFT, "drafts", "a")
    assert found.step == 5
    assert found.what == "of a draft of 3 tokens 1 were right, and the model drafts for itself"
    assert found.margin == pytest.approx(1.0, rel=1e-3)


@pytest.mark.parametrize(("factor", "count"), [(1.9, 0), (2.2, 1)])
def test_a_tie_is_no_wrong_draft(factor, count):
    assert len(check_drafts(play(2, margins={1: factor * FACTOR * NOISE}))) == count


def test_a_draft_at_whose_end_the_request_ended_is_no_wrong_one():
    request = msgspec.structs.replace(REQUEST, max_tokens=2)
    assert check_drafts(play(2, request=request)) == []


def test_behind_another_token_than_the_oracles_nothing_is_reported():
    assert check_drafts(play(4, 2, instead={5: 99})) == []


@pytest.mark.parametrize("drafting", [None, Drafting("mtp", 4), Drafting(ITSELF, 4, (1, 0))])
def test_drafts_of_another_model_and_drafts_that_are_given_may_be_wrong(drafting):
    assert check_drafts(play(4, 2, drafting=drafting)) == []


@pytest.mark.parametrize(
    "fields", [{"sampler": Sampler("seeded")}, {"processors": (Processor("grammar"),)}]
)
def test_what_is_chosen_otherwise_than_drafted_may_be_wrong(fields):
    request = msgspec.structs.replace(REQUEST, **fields)
    assert check_drafts(play(4, 2, request=request)) == []
