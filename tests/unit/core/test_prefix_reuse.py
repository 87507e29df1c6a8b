"""The rules by which an engine reuses prefixes, as it declares them."""

import pytest

from conformance.core.prefix_reuse import PrefixReuse


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
