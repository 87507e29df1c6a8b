"""What a model is made of, from its config, its modules and one pass."""

import mlx.core as mx
import mlx.nn as nn
import pytest
from mlx_lm.models import llama, mamba2
from mlx_lm.models.cache import ArraysCache, CacheList, KVCache, RotatingKVCache

from conformance.backend.description import cache_kinds, rope_kind, shared_parts, state_kinds


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


def llama_with(rope):
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "intermediate_size": 16, "vocab_size": 8}
    heads = {"num_attention_heads": 2, "rms_norm_eps": 1e-5}
    return llama.Model(
        llama.ModelArgs(model_type="llama", rope_scaling=rope, rope_theta=1e4, **sizes, **heads)
    )


def test_parts_are_of_other_files_of_the_library():
    plain = shared_parts(llama_with(None))
    assert "initialize_rope" in plain, "a function that its file imports"
    assert not {"Model", "Attention", "RMSNorm", "DynamicNTKScalingRoPE"} & set(plain)


def test_a_class_that_only_some_models_of_a_file_are_made_of_is_a_part_of_those():
    scaling = {"type": "llama3", "factor": 2.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
    scaled = llama_with(scaling | {"original_max_position_embeddings": 32})
    assert set(shared_parts(scaled)) - set(shared_parts(llama_with(None))) == {"Llama3RoPE"}


def test_what_a_file_calls_is_a_part_though_it_is_no_module():
    assert mamba2.ssm_update.__name__ == "ssm_update"
    model = Bare()
    model.__class__ = type("Model", (Bare,), {"__module__": mamba2.__name__})
    assert "ssm_update" in shared_parts(model)
