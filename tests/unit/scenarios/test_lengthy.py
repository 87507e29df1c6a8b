"""Long schedules, and models that have too few positions for them."""

import dataclasses

import pytest
from miniatures.library import subject
from miniatures.right import ContinuousBatching

from conformance.core.family import Facts, Family
from conformance.run.judging.judge import brief_for
from conformance.scenarios.batch import CHUNKED, RAGGED


@pytest.mark.parametrize("field", ["n_positions", "max_seq_len"])
@pytest.mark.parametrize(
    ("scenario", "longest", "played"),
    [(RAGGED, 559, False), (RAGGED, 560, True), (CHUNKED, 515, False), (CHUNKED, 516, True)],
)
def test_no_sequence_is_longer_than_the_model_has_positions_for(scenario, longest, played, field):
    toy = subject()
    brief = brief_for(toy, ContinuousBatching, 0)
    assert "long" in {schedule.name for schedule in scenario.make(brief)}
    family = Family("learned", Facts(library="toy"), toy.family.config | {field: longest})
    learned = dataclasses.replace(toy, family=family)
    made = scenario.make(brief_for(learned, ContinuousBatching, 0))
    assert ("long" in {schedule.name for schedule in made}) == played
