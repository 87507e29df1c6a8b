"""The ladder: order, schedules that can be played, and a witness for all that is claimed."""

import itertools

import pytest
from miniatures.library import subject
from miniatures.right import ContinuousBatching

from conformance.core.engine import Capability
from conformance.core.engine_options import EngineOptions
from conformance.core.schedule import Arrival, Request, Schedule, from_json, own_sampler, to_json
from conformance.core.schedule import validate as valid
from conformance.core.trace import FinishReason, Mode, Step, StepOutput, TokenEvent, Trace
from conformance.run.judging.judge import brief_for
from conformance.scenarios import LADDER

BATCHED = [scenario for scenario in LADDER if not scenario.oracle_only]
# Those that the toy engine can express; the others are tested with the library that has them.
PLAYED = [s for s in LADDER if s.needs <= ContinuousBatching.capabilities]


@pytest.fixture(scope="module")
def toy():
    return subject()


def test_rungs_go_up_and_names_are_used_once():
    rungs = [scenario.rung for scenario in LADDER]
    assert rungs == sorted(set(rungs))
    assert len({scenario.name for scenario in LADDER}) == len(LADDER)
    assert all(scenario.summary for scenario in LADDER)


def test_the_oracle_is_held_against_itself_before_any_batch():
    assert [scenario.name for scenario in LADDER if scenario.oracle_only] == ["repeat", "rechunked"]
    assert all(scenario.oracle_only for scenario in LADDER[:2])


def test_batched_scenarios_have_witnesses():
    names = {s.name: [witness.name for witness in s.witnesses] for s in BATCHED}
    assert [name for name, of in names.items() if not of or len(set(of)) < len(of)] == []


def made(toy, scenario, seed):
    return list(scenario.make(brief_for(toy, ContinuousBatching, seed)))


def test_schedules_can_be_played_and_written_down(toy):
    for scenario, seed in itertools.product(PLAYED, (0, 1)):
        schedules = made(toy, scenario, seed)
        names = [schedule.name for schedule in schedules]
        assert names, scenario.name
        assert len(set(names)) == len(names), (scenario.name, names)
        for schedule in schedules:
            read = from_json(to_json(valid(schedule)))
            assert read == schedule, (scenario.name, seed, schedule.name)


def test_schedules_are_the_same_each_time_and_others_for_another_seed(toy):
    again = [s.name for s in PLAYED if made(toy, s, 0) != made(toy, s, 0)]
    alike = [s.name for s in PLAYED if made(toy, s, 0) == made(toy, s, 1)]
    assert (again, alike) == ([], [])


def test_schedules_ask_for_no_more_than_the_scenario_says_it_needs(toy):
    """Made for an engine that has just what is needed."""
    asking = []
    for scenario in PLAYED:
        modest = type("Modest", (ContinuousBatching,), {"capabilities": scenario.needs})
        schedules = scenario.make(brief_for(toy, modest, 0))
        asking += [(scenario.name, s.name) for s in schedules if not needed(s) <= scenario.needs]
    assert asking == []


def needed(schedule):
    """The capabilities that a schedule uses, as far as it shows them."""
    used = set()
    requests = schedule.requests
    if schedule.options.kv is not None:
        used.add(Capability.QUANTIZED)
    if any(own_sampler(r, schedule.options) for r in requests):
        used.add(Capability.SAMPLERS)
    if any(r.processors for r in requests):
        used.add(Capability.PROCESSORS)
    if any(r.stop for r in requests):
        alike = len({r.stop for r in requests}) == 1 and all(len(s) == 1 for s in requests[0].stop)
        used.add(Capability.STOP_TOKENS if alike else Capability.STOP)
    if any(r.segments for r in requests):
        used.add(Capability.SEGMENTS)
    if any(r.continues for r in requests):
        used.add(Capability.PREFIX)
    if schedule.removals:
        used.add(Capability.CANCEL)
    if schedule.probes:
        used.add(Capability.PROBES)
    if schedule.decode_on_other_thread:
        used.add(Capability.THREADS)
    return used


def silent(schedule, **tokens):
    """A trace in which each request named gives out so many tokens and ends as ``reasons`` say."""
    events = [
        TokenEvent(name, 1, finish_reason=reason if index == count - 1 else None)
        for name, (count, reason) in tokens.items()
        for index in range(count)
    ]
    return Trace(schedule, Mode.FREE, (Step(0, {}, StepOutput(tuple(events))),))


def witness(scenario, name):
    (found,) = [w for s in BATCHED if s.name == scenario for w in s.witnesses if w.name == name]
    return found


def schedule_of(toy, scenario, index=0):
    (found,) = [s for s in BATCHED if s.name == scenario]
    return found.make(brief_for(toy, ContinuousBatching, 0))[index]


L, S = FinishReason.LENGTH, FinishReason.STOP


def test_an_output_of_one_window_must_have_come_out(toy):
    needs = witness("window", "an output of one window")
    bounded = schedule_of(toy, "window")
    assert needs.seen(silent(bounded, r19=(9, L)))
    assert not needs.seen(silent(bounded, r19=(8, L)))


def test_a_prompt_of_two_windows_is_longer_than_both():
    needs = witness("window", "a prompt of two windows")

    def asked(length):
        requests = (Request("a", (1,) * length, 1), Request("b", (1,) * 7, 1))
        return Schedule("s", (Arrival(requests),), options=EngineOptions(max_kv_size=8))

    assert needs.seen(silent(asked(17)))
    assert not needs.seen(silent(asked(16)))


def test_the_familys_own_window_is_known_from_the_second_request():
    windowed = subject(window=6)
    schedule = schedule_of(windowed, "window")
    assert schedule.options.max_kv_size is None
    needs = witness("window", "an output of one window")
    first = schedule.requests[0].request_id
    assert needs.seen(silent(schedule, **{first: (7, L)}))
    assert not needs.seen(silent(schedule, **{first: (6, L)}))


def test_stops_must_be_met_beside_ends_by_length(toy):
    needs = witness("stop_sequences", "rows that stop beside rows that do not")
    schedule = schedule_of(toy, "stop_sequences")
    assert needs.seen(silent(schedule, across=(3, S), without=(7, L)))
    assert not needs.seen(silent(schedule, across=(3, S), single=(5, S)))
    assert not needs.seen(silent(schedule, across=(7, L), without=(7, L)))


def test_a_continued_request_must_have_ended(toy):
    needs = witness("prompt_cache", "a request that goes on from a cache")
    schedule = schedule_of(toy, "prompt_cache")
    assert needs.seen(silent(schedule, more=(3, L)))
    assert not needs.seen(silent(schedule, first=(3, L), cold=(3, L)))


def test_other_samplers_must_stand_beside_none(toy):
    needs = witness("samplers", "other samplers beside none")
    assert needs.seen(silent(schedule_of(toy, "samplers", 0)))
    assert not needs.seen(silent(schedule_of(toy, "samplers", 1)))


def test_a_prompt_of_equal_arguments_is_shared_and_others_are_others(toy):
    brief = brief_for(toy, ContinuousBatching, 0)
    assert brief.prompt(11) == brief.prompt(11)
    assert brief.prompt(11, 1) != brief.prompt(11)
    assert len(brief.prompt(23)) == 23
    low, high = brief.tokens
    assert all(low <= token < high for token in brief.prompt(500))
