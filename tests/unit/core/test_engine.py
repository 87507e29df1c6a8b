"""What an engine brings beside the four methods."""

from conformance.core.engine import Engine, equipped
from conformance.core.family import Facts, Family


class Drafting(Engine):
    drafters = ("own",)


def test_drafters_that_an_engine_brings_stand_beside_the_familys():
    family = Family("toy", Facts(drafters={"mtp": {"layers": 1}}), {})
    assert equipped(family, Engine) == family
    assert equipped(family, Drafting).facts.drafters == {"own": {}, "mtp": {"layers": 1}}


def test_of_a_kind_that_both_have_the_familys_is_taken():
    family = Family("toy", Facts(drafters={"own": {"layers": 1}}), {})
    assert equipped(family, Drafting).facts.drafters == {"own": {"layers": 1}}
