"""Pairs that can be and are not are counted as none; a witness once seen stays seen."""

from conformance.core.engine_options import EngineOptions
from conformance.core.schedule import Removal, Schedule
from conformance.scenarios.build import produced, text_request, together
from conformance.scenarios.features import Feature
from conformance.tools.explore.feature_coverage import Coverage, witnesses_of


def test_each_pair_that_can_be_is_there_from_the_start(player):
    coverage = Coverage(player().engine, player().brief)
    assert coverage.pairs["arrivals+removals"] == 0
    assert "processors+grammar" not in coverage.pairs
    assert not any("media" in pair for pair in coverage.pairs)


def test_what_a_schedule_has_is_counted(player):
    right = player()
    brief = right.brief
    rows = together(text_request(brief, "a", 5), text_request(brief, "b", 11))
    schedule = Schedule(
        "s",
        (rows,),
        (Removal(("a",), produced("a", 1)),),
        options=EngineOptions(prefill_step_size=4),
    )
    right.findings(schedule)
    assert right.coverage.pairs["removals+pieces"] == 1
    assert right.coverage.pairs["arrivals+removals"] == 0
    assert "2 prompts in one prefill call" in right.coverage.seen
    assert "a removal in decode" in right.coverage.seen
    assert "a late join while another decodes" not in right.coverage.seen


def test_features_that_are_left_out_are_in_no_pair(player):
    coverage = Coverage(player().engine, player().brief, (Feature.REMOVALS,))
    assert Feature.REMOVALS not in coverage.able
    assert not any("removals" in pair for pair in coverage.pairs)


def test_witnesses_are_those_of_the_features():
    assert len(witnesses_of(tuple(Feature))) > len(witnesses_of(()))
    names = [witness.name for witness in witnesses_of(tuple(Feature))]
    assert len(names) == len(set(names))
