"""Kept prefixes in traffic: the same for the same seed; near twins of what is kept."""

import pytest
from miniatures.library import subject
from miniatures.storing import StoresSequences

from conformance.run.judging.judge import brief_for
from conformance.scenarios.workloads.traffic_kept import TRAFFIC_KEPT


@pytest.fixture(scope="module")
def toy():
    return subject()


def made(toy, seed=0):
    return {s.name: s for s in TRAFFIC_KEPT.make(brief_for(toy, StoresSequences, seed))}


def test_equal_seeds_make_equal_schedules_and_others_make_others(toy):
    assert made(toy) == made(toy)
    assert made(toy) != made(toy, seed=1)


@pytest.mark.parametrize("seed", range(4))
def test_only_what_was_forgotten_comes_again(toy, seed):
    for schedule in made(toy, seed).values():
        prompts = [request.prompt for request in schedule.requests if not request.continues]
        again = len(prompts) - len(set(prompts))
        assert again == (schedule.name == "busy")


def differing(one, other):
    return [at for at, pair in enumerate(zip(one, other, strict=False)) if pair[0] != pair[1]]


@pytest.mark.parametrize("seed", range(4))
def test_twins_differ_from_what_is_kept_in_the_last_token_of_a_block_or_of_all(toy, seed):
    schedule = made(toy, seed)["long"]
    brief = brief_for(toy, StoresSequences, seed)
    base = schedule.request("r1")
    kept = base.prompt + brief.solo(base, schedule.options).tokens
    apart = [differing(r.prompt, kept) for r in schedule.requests if len(r.prompt) > 520]
    assert [519] in apart
    assert [len(kept) - 1] in [places[:1] for places in apart]


def test_a_model_of_few_positions_has_no_long_prompts(toy):
    brief = brief_for(toy, StoresSequences, 0)
    short = type(brief)(**{**vars(brief), "longest": 100})
    assert {s.name for s in TRAFFIC_KEPT.make(short)} == {"busy", "continued"}
