"""What rules of reuse let an engine do with the schedules of ``prefix_caching``."""

import pytest
from miniatures.caching import KeepsPrefixes
from miniatures.library import subject
from msgspec.structs import replace

from conformance.core.engine import PrefixReuse
from conformance.core.schedule import Stage
from conformance.run.judging.judge import brief_for
from conformance.scenarios import foreseen
from conformance.scenarios.prefix_caching import PREFIX_CACHING

NONE, LONGER = PrefixReuse(), PrefixReuse(smallest=20)
AFTER = PrefixReuse(on_completion=True)


@pytest.fixture(scope="module")
def made():
    brief = brief_for(subject(), KeepsPrefixes, 0)
    return {schedule.name: schedule for schedule in PREFIX_CACHING.make(brief)}


def test_the_number_of_tokens_that_each_request_reuses(made):
    assert foreseen.foreseen(made["in_turn"], NONE) == {
        "first": 0,
        "in_block": 16,
        "longer": 20,
        "edge": 12,
        "swapped": 4,
    }
    longer = foreseen.foreseen(made["in_turn"], LONGER)
    assert [name for name, count in longer.items() if count] == ["longer"]


def test_a_request_that_still_decodes_gives_nothing_on_completion(made):
    assert foreseen.foreseen(made["late"], NONE)["late"] == 16
    assert foreseen.foreseen(made["late"], AFTER)["late"] == 0
    assert foreseen.foreseen(made["late"], AFTER)["other_again"] == 16


def test_without_prefix_caching_nothing_is_reused(made):
    schedule = made["in_turn"]
    off = replace(schedule, options=replace(schedule.options, prefix_caching=None))
    assert not any(foreseen.foreseen(off, NONE).values())


@pytest.mark.parametrize(
    ("reach", "schedule", "excluding"),
    [
        (foreseen.hit, "late", LONGER),
        (foreseen.hit_of_part, "late", LONGER),
        (foreseen.beside_cold, "beside_cold", PrefixReuse(smallest=24)),
        (foreseen.late_hit, "late", AFTER),
        (foreseen.removed(Stage.PREFILL), "cancelled", LONGER),
        (foreseen.removed(Stage.DECODE), "cancelled", PrefixReuse(block_size=32)),
    ],
)
def test_rules_exclude_what_a_schedule_could_show(made, reach, schedule, excluding):
    assert reach(made[schedule], NONE)
    assert not reach(made[schedule], excluding)


def test_a_schedule_that_is_about_something_else_shows_nothing(made):
    assert not foreseen.late_hit(made["in_turn"], NONE)
    assert not foreseen.beside_cold(made["in_turn"], NONE)
    assert not foreseen.removed(Stage.DECODE)(made["in_turn"], NONE)
    assert foreseen.removed(Stage.DECODE)(made["cancelled"], LONGER)


def test_a_prompt_that_was_kept_whole_and_then_cut_is_a_part(made):
    """Blocks of one token: what is reused ends where the prompts part."""
    assert foreseen.hit_of_part(made["in_turn"], PrefixReuse(block_size=1))
