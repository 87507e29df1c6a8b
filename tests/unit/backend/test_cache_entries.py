"""Which dtypes a cache holds."""

import gc
import itertools

import mlx.core as mx
from mlx_lm.models.cache import KVCache

from conformance.backend.cache_entries import arrays, floating, pending_edges, weigh


def test_arrays_of_no_element_have_no_say():
    cache = KVCache()
    cache.update_and_fetch(mx.zeros((1, 1, 3, 4), mx.bfloat16), mx.zeros((1, 1, 3, 0)))
    assert floating(cache) == ("bfloat16",)
    cache.values = mx.zeros((1, 1, 3, 2))
    assert floating(cache) == ("bfloat16", "float32")


BATCH, COLUMNS = 8, 1024


class Cache:
    """Keeps one array, and says how large it is."""

    state = ()

    def __init__(self, kept, more=None):
        self.kept, self.more = kept, more

    @property
    def nbytes(self):
        return self.kept.nbytes


class Caches:
    """A list of caches as one."""

    state = ()

    def __init__(self, *caches):
        self.caches = caches

    @property
    def nbytes(self):
        return sum(cache.nbytes for cache in self.caches)


def batch():
    mx.clear_cache()  # else a buffer of an earlier test, a little larger, may be used again
    keys = mx.ones((BATCH, COLUMNS)) * 2
    mx.eval(keys)
    return keys


def test_all_arrays_are_found():
    one, two, three = mx.array(1), mx.array(2), mx.array(3)
    found = list(arrays([Cache(one, [two, None, "name"]), (Cache(three, 5),)]))
    assert [a.item() for a in found] == [1, 2, 3]


def test_computed_arrays_wait_for_nothing():
    assert pending_edges([]) == 0
    assert pending_edges([Cache(batch())]) == 0


def test_a_sum_that_is_not_evaluated_grows():
    total = mx.zeros(1)
    edges = []
    for _ in range(4):
        total = total + 1
        edges.append(pending_edges([Cache(total)]))
    steps = {after - before for before, after in itertools.pairwise(edges)}
    assert len(steps) == 1
    assert steps.pop() > 0
    mx.eval(total)
    assert pending_edges([Cache(total)]) == 0


def test_a_row_of_its_own_holds_its_own_bytes():
    kept = weigh("r", [Cache(mx.contiguous(batch()[:1]))], computed=True)
    assert (kept.request_id, kept.counted) == ("r", 4 * COLUMNS)
    assert 4 * COLUMNS <= kept.held <= 5 * COLUMNS


def test_a_view_holds_the_batch():
    kept = weigh("r", [Cache(batch()[:1])], computed=True)
    assert kept.counted == 4 * COLUMNS
    assert kept.held >= 4 * BATCH * COLUMNS


def test_a_row_that_is_not_computed_holds_the_batch():
    kept = weigh("r", [Cache(mx.contiguous(batch()[:1]))], computed=False)
    assert kept.held >= 4 * BATCH * COLUMNS


def test_a_batch_that_lies_about_in_a_cycle_does_not_hide_that_a_view_holds_it():
    gc.disable()
    try:
        keys = batch()
        caches = [Cache(keys[:1])]
        around = [keys]
        around.append(around)
        del keys, around
        kept = weigh("a", caches, computed=True)
    finally:
        gc.enable()
    assert kept.held >= BATCH * kept.counted


def test_each_layer_is_weighed_by_itself():
    first = mx.array([0])
    inner = Caches(Cache(batch()[:1]), Cache(batch()[first]))
    kept = weigh("r", [Cache(batch()[first]), inner], computed=True)
    own = 4 * COLUMNS
    assert [(one.place, one.counted, one.arrays) for one in kept.layers] == [
        ("0", own, 1),
        ("1.0", own, 1),
        ("1.1", own, 1),
    ]
    copy, view, last = (one.held for one in kept.layers)
    assert own <= copy <= 2 * own
    assert view >= BATCH * own
    assert own <= last <= 2 * own
    assert kept.held == copy + view + last
