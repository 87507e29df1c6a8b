"""What an engine brings beside the four methods."""

import pytest

from conformance.core.engine import Engine, PrefixReuse, equipped
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


class Whole(Engine):
    name, library, capabilities = "whole", "toy", frozenset()

    def __init__(self, model, options):
        self.batch, self.model = [], model
        if model == "hides":
            self.pending = []

    def insert(self, submissions): ...
    def step(self): ...
    def remove(self, request_ids): ...
    def close(self): ...


def test_an_attribute_cannot_hide_a_method_that_a_run_calls():
    whole = Whole("model", None)
    whole.step = whole.step  # a wrapper, as of tests
    with pytest.raises(TypeError, match=r"Whole\.pending hides the method pending\(\) of Engine"):
        Whole("hides", None)
    with pytest.raises(TypeError, match=r"Rows\.rows hides the method rows\(\) of Engine"):
        type("Rows", (Whole,), {"rows": ()})
    type("Fine", (Whole,), {"rows": lambda self: {}, "own_rows": (), "packages": ("a",)})


@pytest.mark.parametrize(
    ("rules", "count", "kept"),
    [
        (PrefixReuse(), 18, 16),
        (PrefixReuse(), 3, 0),
        (PrefixReuse(block_size=1), 18, 18),
        (PrefixReuse(block_size=16), 23, 16),
        (PrefixReuse(smallest=17), 18, 0),
        (PrefixReuse(smallest=16), 18, 16),
        (PrefixReuse(smallest=20, block_size=1), 22, 22),
    ],
)
def test_whole_blocks_that_are_not_too_short_are_kept(rules, count, kept):
    assert rules.whole(count, 4) == kept


def test_it_is_written_as_it_was_declared():
    assert str(PrefixReuse()) == ""
    assert str(PrefixReuse(smallest=32, on_completion=True)) == "smallest=32, on_completion=True"


def test_each_rule_alone():
    assert PrefixReuse().each_alone() == ()
    both = PrefixReuse(block_size=16, on_completion=True)
    assert both.each_alone() == (PrefixReuse(block_size=16), PrefixReuse(on_completion=True))
