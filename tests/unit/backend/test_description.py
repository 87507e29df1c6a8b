"""What a model is made of, from its config, its modules and one pass."""

import mlx.core as mx
import mlx.nn as nn
import pytest
from mlx_lm.models.cache import ArraysCache, CacheList, KVCache, RotatingKVCache

from conformance.backend.description import cache_kinds, rope_kind, state_kinds


class Bare(nn.Module):
    pass


class Rotating(nn.Module):
    def __init__(self):
        super().__init__()
        self.rope = nn.RoPE(4)


def fast():
    return mx.fast.rope(
        mx.zeros((1, 1, 1, 4)), 4, traditional=False, base=10.0, scale=1.0, offset=0
    )


def test_each_kind_of_cache_is_named_once_in_the_order_of_layers():
    entries = [KVCache(), CacheList(RotatingKVCache(4), KVCache()), ArraysCache(2)]
    assert cache_kinds(entries) == ("KVCache", "CacheList", "RotatingKVCache", "ArraysCache")


@pytest.mark.parametrize(
    ("config", "model", "forward", "kind"),
    [
        ({}, Bare(), lambda: None, "none"),
        ({}, Bare(), fast, "RoPE"),
        ({}, Rotating(), lambda: None, "RoPE"),
        ({"rope_scaling": {"rope_type": "default"}}, Rotating(), fast, "RoPE"),
        ({"text_config": {"rope_scaling": {"type": "yarn"}}}, Bare(), fast, "RoPE (yarn)"),
        (
            {"rope_parameters": {"rope_type": "default", "mrope_section": [1]}},
            Bare(),
            fast,
            "M-RoPE",
        ),
    ],
)
def test_positions_are_reported(config, model, forward, kind):
    assert rope_kind(config, model, forward) == kind


def test_a_model_that_keeps_deltas_has_positions_of_its_own():
    model = Bare()
    model._rope_deltas = None
    assert rope_kind({}, model, fast) == "M-RoPE"
    assert mx.fast.rope.__name__ == "rope"


class Convolving(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv1d(4, 4, kernel_size=3, groups=4)


@pytest.mark.parametrize(
    ("shapes", "kinds"),
    [
        ([(1, 2, 4)], ("convolution",)),
        ([(1, 2, 4), (1, 4, 2)], ("convolution", "recurrence")),
        ([(1, 2, 4, 4)], ("recurrence",)),
        ([(1, 3, 4)], ("recurrence",)),
    ],
)
def test_the_tail_of_a_convolution_is_no_recurrence(shapes, kinds):
    cache = ArraysCache(3)

    def forward():
        for index, shape in enumerate(shapes):
            cache[index] = mx.zeros(shape)

    assert state_kinds([KVCache(), CacheList(cache)], Convolving(), forward) == kinds


def test_a_model_with_keys_only_has_no_states():
    def forward():
        raise AssertionError

    assert state_kinds([KVCache()], Convolving(), forward) == ()
