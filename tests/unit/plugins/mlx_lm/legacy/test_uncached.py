"""A model that cannot do without a cache gets a fresh one; another is called without."""

import mlx.core as mx
from mlx_lm.models.cache import KVCache

from conformance.plugins.mlx_lm.legacy.uncached import uncached

INPUTS = mx.array([[1, 2]])


class Model:
    """Gives whether it was called with a cache; ``needs`` one or not."""

    layers = (0,)

    def __init__(self, *, needs):
        self.needs = needs

    def __call__(self, inputs, cache=None):
        if self.needs and cache is None:
            raise UnboundLocalError("state")
        return inputs, cache


def test_a_model_is_called_without_a_cache():
    assert uncached(Model(needs=False), INPUTS) == (INPUTS, None)


def test_a_model_that_needs_a_cache_gets_a_fresh_one():
    _, (cache,) = uncached(Model(needs=True), INPUTS)
    assert isinstance(cache, KVCache)
    assert cache.empty()
