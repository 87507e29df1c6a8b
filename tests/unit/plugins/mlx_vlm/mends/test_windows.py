"""In half precision, which the suite plays on few families, a joined empty row widens nothing."""

import mlx.core as mx
import pytest
from mlx_vlm.models.cache import BatchKVCache, BatchRotatingKVCache

from conformance.core.faults.declaration import Hits
from conformance.plugins.mlx_vlm.mends.windows import joined_keys_keep_their_dtype


def joined(make, *, filled_first):
    filled, empty = make(), make()
    keys = mx.ones((1, 2, 4, 16), mx.bfloat16)
    filled.update_and_fetch(keys, keys)
    one, other = (filled, empty) if filled_first else (empty, filled)
    one.extend(other)
    return one


@pytest.mark.parametrize("filled_first", [True, False])
@pytest.mark.parametrize("make", [lambda: BatchKVCache([0]), lambda: BatchRotatingKVCache(8, [0])])
def test_joined_keys_keep_their_dtype(make, filled_first):
    widened = joined(make, filled_first=filled_first)
    assert widened.keys.dtype == mx.float32, "the library does it right: the mend can go"
    hits = Hits()
    with joined_keys_keep_their_dtype.repair(hits):
        made = joined(make, filled_first=filled_first)
    assert hits.count
    assert made.keys.dtype == made.values.dtype == mx.bfloat16
    assert mx.array_equal(made.keys, widened.keys)
