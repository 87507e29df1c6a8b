"""What prompts share with what is kept before them does not hang on what is drawn."""

import pytest
from miniatures.caching import KeepsPrefixes
from miniatures.library import subject

from conformance.core.engine_options import EngineOptions
from conformance.run.judging.judge import brief_for
from conformance.scenarios.build import begun_otherwise
from conformance.scenarios.foreseen import common
from conformance.scenarios.prefix_caching import PREFIX_CACHING

TEXT = ("in_turn", "beside_cold", "late", "evicted", "cancelled")


@pytest.fixture(scope="module")
def toy():
    return subject()


def shared(brief):
    """For each schedule and request: how many tokens of it some earlier request leaves, at most."""
    found = {}
    for schedule in PREFIX_CACHING.make(brief):
        left = []
        for arrival in schedule.arrivals if schedule.name in TEXT else ():
            for request in arrival.requests:
                longest = max((common(request.prompt, kept) for kept in left), default=0)
                found[schedule.name, request.request_id] = longest
            left += [r.prompt + brief.solo(r, EngineOptions()).tokens for r in arrival.requests]
    return found


def test_every_seed_shares_as_many_tokens(toy):
    usual = shared(brief_for(toy, KeepsPrefixes, 0))
    assert usual["cancelled", "b"] == 23
    assert usual["beside_cold", "cold"] == 0
    others = {seed: shared(brief_for(toy, KeepsPrefixes, seed)) for seed in range(1, 60)}
    assert {seed: found for seed, found in others.items() if found != usual} == {}


def test_another_first_token_is_one_that_is_free(toy):
    brief = brief_for(toy, KeepsPrefixes, 0)
    low, high = brief.tokens
    assert begun_otherwise(brief, (5, 6), (7,)) == (5, 6)
    assert begun_otherwise(brief, (5, 6), (5, 6)) == (7, 6)
    assert begun_otherwise(brief, (high - 1, 6), (high - 1,)) == (low, 6)
    assert begun_otherwise(brief, (), (5,)) == ()
