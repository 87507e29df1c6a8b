"""Which classes, functions and caches of a library a model has."""

import mlx.core as mx
import mlx.nn as nn
import pytest
from mlx_lm.models import llama, mamba2
from mlx_lm.models.cache import ArraysCache, CacheList, KVCache, RotatingKVCache

from conformance.backend.code_traits import filled, load_exclusions, parts
from conformance.core.errors import FamilyError


def llama_with(rope):
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "intermediate_size": 16, "vocab_size": 8}
    heads = {"num_attention_heads": 2, "rms_norm_eps": 1e-5}
    return llama.Model(
        llama.ModelArgs(model_type="llama", rope_scaling=rope, rope_theta=1e4, **sizes, **heads)
    )


def test_parts_are_named_by_their_files():
    plain = parts(llama_with(None), "mlx_lm")
    assert {"part:llama.Attention", "part:rope_utils.initialize_rope"} <= plain
    assert not any("RMSNorm" in part or "DynamicNTK" in part for part in plain)
    assert parts(llama_with(None), "mlx_vlm") == frozenset()


def test_a_class_that_only_some_models_of_a_file_are_made_of_is_a_part_of_those():
    scaling = {"type": "llama3", "factor": 2.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
    scaled = llama_with(scaling | {"original_max_position_embeddings": 32})
    more = parts(scaled, "mlx_lm") - parts(llama_with(None), "mlx_lm")
    assert more == {"part:rope_utils.Llama3RoPE"}


def test_what_a_file_calls_is_a_part_also_of_a_model_elsewhere_that_extends_its_classes():
    class Mine(mamba2.Model):
        def __init__(self):
            nn.Module.__init__(self)

    assert {"part:mamba2.Model", "part:ssm.ssm_update"} <= parts(Mine(), "mlx_lm")


def plain(keys, values):
    cache = KVCache()
    cache.update_and_fetch(mx.zeros(keys), mx.zeros(values))
    return cache


SAME = ((1, 2, 3, 4), (1, 2, 3, 4))


def test_the_class_of_the_last_cache_and_those_that_stay_empty():
    assert set(filled([])) == set()
    assert set(filled([plain(*SAME)])) == {"last:KVCache"}
    half = ArraysCache(2)
    half[0] = mx.zeros((1, 1))
    found = set(filled([half, CacheList(plain(*SAME), RotatingKVCache(4))]))
    assert found == {"last:CacheList", "unfilled:ArraysCache", "unfilled:RotatingKVCache"}


def test_keys_and_values_of_several_shapes_are_uneven():
    wide = (1, 2, 3, 8)
    assert "keys:uneven" in set(filled([plain(SAME[0], wide)]))
    assert "keys:uneven" in set(filled([plain(*SAME), plain(wide, wide)]))
    assert "keys:uneven" not in set(filled([plain(*SAME), plain(*SAME)]))
    beside = [plain(SAME[0], wide), RotatingKVCache(4)]
    assert "keys:uneven" not in set(filled(beside)), "a prefix is not kept in blocks then"


@pytest.mark.parametrize("text", ["a = ''", "a = 1", "a = ["])
def test_an_exclusion_without_a_reason_is_an_error_that_names_the_file(tmp_path, text):
    path = tmp_path / "_excluded.toml"
    path.write_text(text)
    with pytest.raises(FamilyError, match=r"_excluded\.toml"):
        load_exclusions(path)


def test_a_missing_file_of_exclusions_is_an_error(tmp_path):
    with pytest.raises(FamilyError, match="can't be read"):
        load_exclusions(tmp_path / "none.toml")
