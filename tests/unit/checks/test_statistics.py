"""What an engine counts is what it did."""

import dataclasses

import msgspec
import pytest
from miniatures.plays import Script

from conformance.checks.statistics import check_statistics
from conformance.core.counted import Counted, Pace, PromptCount
from conformance.core.engine_options import EngineOptions, PrefixCaching
from conformance.core.schedule import Media, Probe, Stage, Trigger


def right(script):
    """The statistics of the script's free run, of which all prompts end in the first step."""
    moments = script.free.moments
    requests = script.schedule.requests
    moments[0].processed = {r.request_id: len(r.prompt) for r in requests}
    events = sum(len(moment.events) for moment in moments)
    reports = [
        PromptCount(r.request_id, Pace(len(r.prompt), 0.5, len(r.prompt) / 0.5)) for r in requests
    ]
    prompt = sum(len(r.prompt) for r in requests)
    decoded = sum(bool(moment.events) for moment in moments)
    return Counted(
        Pace(prompt, 0.5, prompt / 0.5),
        Pace(events, 1.0, float(events)),
        2.0,
        2.0,
        tuple(reports),
        steps=decoded,
    )


def found(script, counted):
    script.free.counted = counted
    return [finding.what for finding in check_statistics(script.play())]


def test_right_statistics_are_right():
    script = Script()
    assert found(script, right(script)) == []
    assert found(script, None) == []
    script.free.out_of_steps = True
    assert found(script, dataclasses.replace(right(script), peak=0.0)) == []


def changed(part, **fields):
    def change(counted):
        return dataclasses.replace(
            counted, **{part: dataclasses.replace(getattr(counted, part), **fields)}
        )

    return change


def in_report(**fields):
    def change(counted):
        first, *others = counted.ended
        return dataclasses.replace(counted, ended=(dataclasses.replace(first, **fields), *others))

    return change


@pytest.mark.parametrize(
    ("change", "what"),
    [
        (changed("prompts", tokens=1), "prompt tokens: 1"),
        (changed("outputs", tokens=1), "output tokens: 1"),
        (changed("prompts", seconds=3.0, rate=None), "seconds of prefill: 3"),
        (changed("prompts", seconds=0.0, rate=None), "seconds of prefill: 0"),
        (changed("outputs", seconds=-1.0, rate=None), "seconds of decoding: -1"),
        (changed("outputs", seconds=1.9, rate=None), "seconds of prefill and decoding: 2.4"),
        (changed("prompts", rate=5.0), "tokens per second of prefill: 5"),
        (lambda c: dataclasses.replace(c, steps=c.steps + 1), "steps of decoding: "),
        (lambda c: dataclasses.replace(c, peak=0.0), "GB of memory at the peak: 0.0"),
        (lambda c: dataclasses.replace(c, peak=2e9), "GB of memory at the peak: 2000000000.0"),
        (lambda c: dataclasses.replace(c, ended=c.ended[1:]), "reports of its prefill's end: 0"),
        (in_report(prompt=Pace(9)), "tokens of its prompt: 9"),
        (in_report(reused=1), "reused tokens: 1"),
        (in_report(prompt=Pace(3, 0.0, 0.0)), "seconds of its prefill: 0"),
    ],
)
def test_a_wrong_figure_is_found(change, what):
    script = Script()
    (text, *_) = found(script, change(right(script)))
    assert what in text


def test_a_removed_prompt_may_be_counted_whole_or_not():
    script = Script()
    counted = right(script)
    script.free.moments[0].processed["c"] = 0
    assert found(script, counted) == []


def test_the_last_token_of_a_prompt_may_be_fed_in_a_decode_step():
    script = Script()
    counted = right(script)
    later = dataclasses.replace(counted, last_left_out=True)
    assert any("prompt tokens" in what for what in found(script, later))
    fewer = counted.prompts.tokens - len(script.schedule.requests)
    prompts = Pace(fewer, 0.5, fewer / 0.5)
    assert found(script, dataclasses.replace(later, prompts=prompts)) == []


def test_without_work_there_may_be_no_time():
    script = Script()
    for moment in script.free.moments:
        moment.events, moment.processed = [], {}
    idle = Counted(Pace(0, 0.0, 0.0), Pace(0), 2.0, 2.0)
    assert found(script, idle) == []
    wrong = dataclasses.replace(idle, prompts=Pace(0, -0.1, 0.0))
    (text,) = found(script, wrong)
    assert "seconds of prefill: -0.1, where not less than 0" in text


def test_accepted_invalid_calls_are_not_counted_here():
    script = Script()
    script.free.counted = Counted(Pace(0), Pace(1), 2.0, 2.0)
    play = script.play()
    assert check_statistics(play)
    probes = (Probe("empty_prompt", Trigger("a", Stage.DECODE, 1)),)
    schedule = msgspec.structs.replace(play.schedule, probes=probes)
    assert check_statistics(dataclasses.replace(play, schedule=schedule)) == []


def in_its_first(script, **fields):
    """Let the script's first request have these fields."""
    first, *_ = script.schedule.requests
    arrivals = tuple(
        msgspec.structs.replace(
            arrival,
            requests=tuple(
                msgspec.structs.replace(r, **fields) if r is first else r for r in arrival.requests
            ),
        )
        for arrival in script.schedule.arrivals
    )
    script.schedule = msgspec.structs.replace(script.schedule, arrivals=arrivals)
    script.free.schedule = script.schedule


@pytest.mark.parametrize(("media", "more", "wrong"), [(0, 9, True), (1, 9, False), (1, -1, True)])
def test_of_a_prompt_with_media_positions_may_be_counted_and_no_less_than_its_tokens(
    media, more, wrong
):
    script = Script()
    in_its_first(script, media=(Media("image", (8, 8)),) * media)
    counted = right(script)
    first, *others = counted.ended
    tokens = first.prompt.tokens + more
    pace = Pace(tokens, first.prompt.seconds, tokens / first.prompt.seconds)
    report = dataclasses.replace(first, prompt=pace)
    assert bool(found(script, dataclasses.replace(counted, ended=(report, *others)))) == wrong


@pytest.mark.parametrize(("media", "wrong"), [(0, True), (1, False)])
def test_so_may_the_positions_of_all_prompts(media, wrong):
    script = Script()
    in_its_first(script, media=(Media("image", (8, 8)),) * media)
    counted = right(script)
    tokens = counted.prompts.tokens + 99
    prompts = Pace(tokens, counted.prompts.seconds, tokens / counted.prompts.seconds)
    assert bool(found(script, dataclasses.replace(counted, prompts=prompts))) == wrong
    none = Pace(0, counted.prompts.seconds, 0.0)
    assert found(script, dataclasses.replace(counted, prompts=none))


def test_an_engine_that_is_made_anew_counts_anew():
    script = Script()
    counted = dataclasses.replace(right(script), outputs=Pace(0, 0.0, 0.0))
    assert found(script, counted)
    options = EngineOptions(prefix_caching=PrefixCaching(restarts=True))
    script.schedule = msgspec.structs.replace(script.schedule, options=options)
    assert not found(script, counted)
