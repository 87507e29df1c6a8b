"""Schedules: JSON both ways, and one clear sentence for each that cannot be played."""

import pytest

from conformance.core.engine_options import EngineOptions
from conformance.core.errors import ScheduleError
from conformance.core.schedule import (
    Arrival,
    Continuation,
    Probe,
    Removal,
    Request,
    Schedule,
    Stage,
    Trigger,
    from_json,
    own_processors,
    own_sampler,
    to_json,
    triggers,
    validate,
)
from conformance.core.token_choice import Processor, Sampler

FULL = Schedule(
    "full",
    (
        Arrival((Request("a", (1, 2, 3), 4, segments=(2, 1)),)),
        Arrival(
            (
                Request(
                    "b",
                    (4,),
                    2,
                    Sampler("seeded", {"seed": 3, "temperature": 0.5}),
                    (Processor("library", {"logit_bias": {"7": -1.5}}),),
                    stop=((1, 2), (3,)),
                    continues=Continuation("a", 2),
                ),
            ),
            Trigger("a", Stage.DECODE, 2),
        ),
    ),
    (Removal(("a",), Trigger("a", Stage.PREFILL, 1)),),
    (Probe("empty_prompt", Trigger(None, count=3)),),
    EngineOptions(prefill_step_size=4, max_kv_size=8),
    decode_on_other_thread=True,
    beside_models=True,
)


def test_every_field_comes_back_from_json():
    assert from_json(to_json(FULL)) == FULL


def test_what_is_not_set_is_not_written():
    text = to_json(Schedule("small", (Arrival((Request("a", (1,), 2),)),)))
    assert "options" not in text
    assert "sampler" not in text
    assert from_json(text).options == EngineOptions()


def schedule(*requests, **fields):
    return Schedule("s", (Arrival(requests),), **fields)


A = Request("a", (1, 2), 3)
SENTENCES = [
    (schedule(A, A), "schedule 's', request 'a': the id is used twice"),
    (schedule(Request("a", (), 3)), "schedule 's', request 'a': prompt is empty"),
    (
        schedule(Request("a", (1,), 0)),
        "schedule 's', request 'a': max_tokens is 0, must be at least 1",
    ),
    (
        schedule(Request("a", (1, 2), 3, segments=(1, 2))),
        "schedule 's', request 'a': segments add up to 3, the prompt has 2 tokens",
    ),
    (
        schedule(A, options=EngineOptions(sampler=Sampler("library"))),
        "schedule 's', request 'a': it names no sampler, and would get the engine's",
    ),
    (
        schedule(A, options=EngineOptions(processors=(Processor("library"),))),
        "schedule 's', request 'a': it names no processors, and would get the engine's",
    ),
    (
        schedule(Request("b", (1,), 1, continues=Continuation("a")), A),
        "schedule 's', request 'b': continues 'a', which arrives no earlier",
    ),
    (
        schedule(A, removals=(Removal(("a", "x"), Trigger()),)),
        "schedule 's': removal of unknown request 'x'",
    ),
    (
        schedule(A, removals=(Removal(("a",), Trigger("x")),)),
        "schedule 's': trigger on unknown request 'x'",
    ),
    (
        schedule(A, probes=(Probe("p", Trigger("x")),)),
        "schedule 's': trigger on unknown request 'x'",
    ),
    (
        Schedule("s", (Arrival((A,), Trigger("x")),)),
        "schedule 's': trigger on unknown request 'x'",
    ),
]


@pytest.mark.parametrize(("broken", "sentence"), SENTENCES)
def test_what_cannot_be_played_is_reported_in_a_sentence(broken, sentence):
    with pytest.raises(ScheduleError) as raised:
        validate(broken)
    assert str(raised.value) == sentence
    with pytest.raises(ScheduleError):
        from_json(to_json(broken))


def test_a_request_may_go_on_from_itself_never_but_from_one_of_the_same_arrival():
    later = Request("b", (1,), 1, continues=Continuation("a"))
    assert validate(schedule(A, later)).request("b") is later


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "not a schedule: "),
        ("{}", "not a schedule: Object missing required field `name`"),
        (
            '{"name": "s", "arrivals": [{"requests": [{"request_id": "a", "prompt": ["x"],'
            ' "max_tokens": 1}]}]}',
            "not a schedule: Expected `int`, got `str` - at `$.arrivals[0].requests[0].prompt[0]`",
        ),
        (
            '{"name": "s", "arrivals": [{"requests": [], "when": {"stage": "asleep"}}]}',
            "not a schedule: Invalid enum value 'asleep' - at `$.arrivals[0].when.stage`",
        ),
    ],
)
def test_text_that_is_no_schedule_is_reported_with_its_field(text, words):
    with pytest.raises(ScheduleError) as raised:
        from_json(text)
    assert str(raised.value).startswith(words)


def test_request_looks_up_by_id():
    assert FULL.request("b").prompt == (4,)
    with pytest.raises(ScheduleError, match="schedule 'full' has no request 'z'"):
        FULL.request("z")


def test_requests_are_in_order_of_arrival_and_removed_ids_are_gathered():
    assert [r.request_id for r in FULL.requests] == ["a", "b"]
    assert FULL.removed_ids == {"a"}


def test_triggers_are_those_of_arrivals_removals_and_probes():
    assert triggers(FULL) == (
        Trigger(),
        Trigger("a", Stage.DECODE, 2),
        Trigger("a", Stage.PREFILL, 1),
        Trigger(None, count=3),
    )


def test_what_the_engine_has_anyway_is_not_a_request_s_own():
    sampler, processors = Sampler("library", {"temp": 1.0}), (Processor("library"),)
    given = Request("a", (1,), 1, sampler, processors)
    for options in (EngineOptions(), EngineOptions(sampler=sampler, processors=processors)):
        same = options != EngineOptions()
        assert own_sampler(given, options) == (None if same else sampler)
        assert own_processors(given, options) == (() if same else processors)
