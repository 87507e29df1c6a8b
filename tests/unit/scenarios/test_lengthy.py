"""Long schedules, and models that have too few positions for them."""

import dataclasses

import pytest
from miniatures.library import subject
from miniatures.right import ContinuousBatching

from conformance.core.family import Facts, Family
from conformance.run.judging.judge import brief_for
from conformance.scenarios.batch import CHUNKED, RAGGED
from conformance.scenarios.request_options import SAMPLERS


@pytest.mark.parametrize(
    ("scenario", "name", "most"),
    [(RAGGED, "long", 560), (CHUNKED, "long", 516), (SAMPLERS, "history_grows", 261)],
)
@pytest.mark.parametrize("played", [True, False])
def test_no_sequence_is_longer_than_the_model_has_positions_for(scenario, name, most, played):
    toy = subject()
    brief = brief_for(toy, ContinuousBatching, 0)
    assert name in {schedule.name for schedule in scenario.make(brief)}
    longest = most if played else most - 1
    family = Family("learned", Facts(library="toy"), toy.family.config | {"n_positions": longest})
    learned = dataclasses.replace(toy, family=family)
    made = scenario.make(brief_for(learned, ContinuousBatching, 0))
    assert (name in {schedule.name for schedule in made}) == played
