"""A drawn workload has ingredients that it is given, and none of the others."""

import pytest
from miniatures.library import subject
from miniatures.right import ContinuousBatching

from conformance.core.schedule import validate
from conformance.run.judging.judge import brief_for
from conformance.scenarios.choices import Seeded
from conformance.scenarios.features import Feature, able, features_of, together
from conformance.scenarios.workloads.drawing import draw_workload


@pytest.fixture(scope="module")
def brief():
    return brief_for(subject(window=8), ContinuousBatching, 0)


def drawn(brief, features, number):
    return validate(draw_workload(Seeded(number), brief, features, name="drawn"))


def test_equal_seeds_make_equal_ones_and_others_make_others_of_other_sizes(brief):
    every = together(able(brief))
    made = [drawn(brief, every, number) for number in range(12)]
    assert made == [drawn(brief, every, number) for number in range(12)]
    sizes = {len(schedule.requests) for schedule in made}
    assert min(sizes) >= 8
    assert len(sizes) > 5
    assert len({schedule.options.completion_batch_size for schedule in made}) > 5


@pytest.mark.parametrize("without", Feature)
def test_what_is_left_out_is_in_none_and_the_rest_is_in_some(brief, without):
    left = together(feature for feature in able(brief) if feature is not without)
    made = [features_of(drawn(brief, left, number), brief.window) for number in range(16)]
    # Rows with ends of their own pass a window of eight tokens without being asked to.
    free = {Feature.LONG, Feature.SLOTS}
    assert set.union(set(), *made) - free <= left
    # Whole rows go on from no cache; where all come at once, none is removed.
    never = {Feature.CONTINUES} | ({Feature.REMOVALS} if without is Feature.ARRIVALS else set())
    assert left - never <= set.union(set(), *made)


def test_some_are_emptied_by_a_removal_and_some_are_not(brief):
    made = [drawn(brief, together(able(brief)), number) for number in range(12)]
    emptied = [any(r.when.request_id in r.request_ids for r in one.removals) for one in made]
    assert {*emptied} == {True, False}
