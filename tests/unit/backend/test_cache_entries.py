"""Which dtypes a cache holds."""

import mlx.core as mx
from mlx_lm.models.cache import KVCache

from conformance.backend.cache_entries import floating


def test_arrays_of_no_element_have_no_say():
    cache = KVCache()
    cache.update_and_fetch(mx.zeros((1, 1, 3, 4), mx.bfloat16), mx.zeros((1, 1, 3, 0)))
    assert floating(cache) == ("bfloat16",)
    cache.values = mx.zeros((1, 1, 3, 2))
    assert floating(cache) == ("bfloat16", "float32")
