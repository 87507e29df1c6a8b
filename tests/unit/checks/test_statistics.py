"""What an engine counts is what it did."""

import dataclasses

import msgspec
import pytest
from miniatures.plays import Script

from conformance.checks.statistics import check_statistics
from conformance.core.counted import Counted, Pace, PromptCount
from conformance.core.schedule import Probe, Stage, Trigger


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
    return Counted(
        Pace(prompt, 0.5, prompt / 0.5), Pace(events, 1.0, float(events)), 2.0, 2.0, tuple(reports)
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
