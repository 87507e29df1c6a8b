"""Which ingredients go together, and which a schedule has."""

import pytest
from msgspec.structs import replace

from conformance.core.engine import Capability
from conformance.core.schedule import Arrival, Request, Schedule, validate
from conformance.core.trace import Stream
from conformance.scenarios import Brief
from conformance.scenarios.choices import Seeded
from conformance.scenarios.drawn import Space, draw_schedule
from conformance.scenarios.features import NEEDS, Feature, able, features_of, needed, together


def brief(**more):
    """Of a model with all that there is."""
    facts = {
        "modalities": ("text", "image"),
        "sizes": {"image": ((8, 8), (16, 8))},
        "drafters": ("draft_model",),
        "heads": lambda: frozenset({64}),
        "window": 8,
        "capabilities": frozenset(Capability),
    } | more
    return Brief(
        (5, 30), bounded=True, seed=0, probes=(), solo=lambda *_: Stream((5, 6, 7), None),
        compose=lambda parts: (tuple(t for p in parts if isinstance(p, tuple) for t in p), ()),
        **facts,
    )  # fmt: skip


def test_an_engine_without_capabilities_can_be_given_little():
    assert able(brief(capabilities=frozenset())) == (Feature.LONG,)


@pytest.mark.parametrize(
    ("without", "feature"),
    [
        ({"modalities": ("text",)}, Feature.MEDIA),
        ({"drafters": ()}, Feature.DRAFTS),
        ({"window": None}, Feature.LONG),
        ({"window": 4096}, Feature.LONG),
        ({"required": "image"}, Feature.CACHING),
    ],
)
def test_what_a_family_has_no_use_for_is_left_out(without, feature):
    assert feature in able(brief())
    assert feature not in able(brief(**without))


def test_a_bound_is_for_families_without_a_window():
    assert Feature.BOUNDED not in able(brief())
    assert Feature.BOUNDED in able(brief(window=None))


def test_the_first_of_two_that_exclude_each_other_stays():
    both = (Feature.CACHING, Feature.CONTINUES)
    assert together(both) == {Feature.CACHING}
    assert together(both[::-1]) == {Feature.CONTINUES}
    media = (Feature.MEDIA, Feature.PIECES)
    assert together(media) == set(media)
    assert together(media, uncut=True) == {Feature.MEDIA}


@pytest.mark.parametrize("feature", [f for f in NEEDS if f is not Feature.MEDIA])
def test_a_schedule_drawn_with_a_feature_has_it_and_no_other(feature):
    given = brief(window=None) if feature is Feature.BOUNDED else brief()
    made = [
        draw_schedule(Seeded(number), given, {feature}, Space(), name="drawn")
        for number in range(40)
    ]
    has = [features_of(validate(schedule), given.window) - {Feature.LONG} for schedule in made]
    if feature is Feature.LONG:
        has = [features_of(schedule, given.window) & {Feature.LONG} for schedule in made]
    found = frozenset().union(*has)
    # A cache to go on from, or a prefix that is kept, comes of an earlier arrival.
    also = {
        Feature.CONTINUES: {Feature.ARRIVALS},
        Feature.CACHING: {Feature.ARRIVALS, Feature.SEGMENTS},
    }
    assert found == {feature} | also.get(feature, set())


def test_other_models_are_named_where_they_are_needed():
    alone = Schedule("small", (Arrival((Request("a", (1, 2), 3),)),))
    assert list(needed(alone)) == ["1 request"]
    assert list(needed(replace(alone, beside_models=True)))[1:] == ["other models in the process"]
