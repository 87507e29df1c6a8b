"""A pool of blocks of two tokens by hand: what it finds, holds, gives up and counts."""

import msgspec
import pytest
from miniatures.plays import Script

from conformance.checks.pool_rules import Rules, check_pooled
from conformance.core.engine_options import EngineOptions, PrefixCaching
from conformance.core.pooled import PoolCall, Pooled, Prefix

CACHING = PrefixCaching(blocks=2, block_size=2, snapshots=2)
ONE, TWO, OTHER = Prefix(0, (1, 2)), Prefix(0, (1, 2, 3, 4)), Prefix(0, (5, 6))
PROMPT = Prefix(0, (1, 2, 3, 4, 5))
SIZES = {ONE: 8, TWO: 8, OTHER: 8}
LONG = tuple(range(20))


def keep(prefix, **more):
    return Pooled(
        PoolCall.KEEP,
        prefix,
        **({"nbytes": 16, "block_bytes": 8, "most": 99, "sizes": SIZES} | more),
    )


def test_blocks_are_held_until_they_are_released_and_then_free_in_that_order():
    rules = Rules(CACHING)
    rules.play(keep(PROMPT))
    assert (rules.free, rules.held) == ([], {ONE: 1, TWO: 1})
    rules.play(Pooled(PoolCall.RELEASE, released=(TWO, ONE)))
    assert (rules.free, rules.held) == ([TWO, ONE], {})
    assert rules.play(Pooled(PoolCall.FIND, PROMPT)) == 4
    assert rules.play(Pooled(PoolCall.FIND, Prefix(1, PROMPT.tokens))) == 0
    assert rules.counts["lookups_hit"] == rules.counts["lookups_miss"] == 1


def test_the_oldest_free_block_is_given_up_and_a_held_one_never():
    rules = Rules(CACHING)
    rules.play(keep(PROMPT))
    rules.play(keep(OTHER))
    assert rules.held == {ONE: 1, TWO: 1}
    rules.play(Pooled(PoolCall.RELEASE, released=(ONE, TWO)))
    rules.play(keep(OTHER))
    assert (rules.free, rules.held) == ([TWO], {OTHER: 1})
    assert rules.counts["evictions"] == 1


def test_bytes_are_bounded_before_something_is_kept():
    """The place that is empty then is the last one: the next block takes another's."""
    rules = Rules(CACHING)
    rules.play(keep(PROMPT))
    rules.play(Pooled(PoolCall.RELEASE, released=(ONE, TWO), sizes=SIZES))
    rules.play(keep(OTHER, nbytes=8, most=16))
    assert (rules.free, rules.held) == ([None], {OTHER: 1})
    assert (rules.counts["memory_evictions"], rules.counts["evictions"]) == (1, 2)


def test_the_longest_snapshot_is_found_and_renewed():
    rules = Rules(CACHING)
    short, long, third = (Prefix(0, LONG[:n]) for n in (16, 18, 17))
    for prefix in (short, long):
        rules.play(Pooled(PoolCall.KEEP_SNAPSHOT, prefix, most=9))
    assert rules.play(Pooled(PoolCall.FIND_SNAPSHOT, Prefix(0, LONG[:18]))) == 16
    assert list(rules.snapshots) == [long, short]
    rules.play(Pooled(PoolCall.KEEP_SNAPSHOT, third, most=9))
    assert list(rules.snapshots) == [short, third]
    rules.play(Pooled(PoolCall.KEEP_SNAPSHOT, Prefix(0, LONG[:15]), most=9))
    assert list(rules.snapshots) == [short, third]


def test_files_outlive_a_restart_and_are_read_behind_memory():
    rules = Rules(CACHING)
    rules.play(keep(PROMPT, on_disk=True))
    find = Pooled(PoolCall.FIND_ON_DISK, PROMPT, on_disk=True)
    assert rules.play(find) == 0  # its first block is in memory
    rules.play(Pooled(PoolCall.RESTART, on_disk=True))
    assert (rules.free, rules.held) == ([None, None], {})
    assert rules.play(find) == 4
    assert rules.counts["disk_hits"] == 2


def findings(*calls):
    script = Script()
    options = EngineOptions(prefix_caching=CACHING)
    script.schedule = msgspec.structs.replace(script.schedule, options=options)
    script.free.moments[1].pooled = calls
    return [(found.what, found.expected, found.got) for found in check_pooled(script.play())]


def test_a_block_that_is_not_held_is_reported():
    wrong = keep(OTHER, free=(None, OTHER))
    assert findings(wrong) == [("after call 0, keep, the free places are others", "-", "-, 2")]


@pytest.mark.parametrize("missing", ["lookups_hit", "resident_bytes"])
def test_a_count_that_is_not_there_is_reported(missing):
    right = Pooled(PoolCall.FIND_ON_DISK, OTHER, free=(None, None))
    counted = Rules(CACHING).counted(right)
    del counted[missing]
    (found,) = findings(_counted(right, counted))
    assert found == (f"after call 0, find_on_disk, the count {missing} is wrong", "0", "none")


def _counted(call, counted):
    return Pooled(call.call, call.prefix, free=call.free, counted=counted)


def test_no_blocks_are_looked_for_where_snapshots_are_kept():
    free, wide = {"free": (None, None)}, Prefix(0, LONG)
    snapshot = Pooled(PoolCall.KEEP_SNAPSHOT, wide, most=9, snapshots=(wide,), **free)
    lookup = Pooled(PoolCall.FIND, ONE, snapshots=(wide,), **free)
    assert findings(snapshot) == []
    assert findings(snapshot, lookup)[0][0].startswith("blocks are looked for")


def test_each_snapshot_is_cut_by_itself():
    """A batch may give plain caches back where a row that was alone kept its model's own kind."""
    rules = Rules(PrefixCaching(block_size=4))
    other = Prefix(0, (9, *LONG[1:]))
    for prefix in (Prefix(0, LONG), other):
        rules.play(Pooled(PoolCall.KEEP_SNAPSHOT, prefix, nbytes=1, most=9))
    found = [
        rules.play(
            Pooled(PoolCall.FIND_SNAPSHOT, Prefix(0, kept.tokens[:18]), cut=frozenset({other}))
        )
        for kept in (Prefix(0, LONG), other)
    ]
    assert found == [0, 16]
