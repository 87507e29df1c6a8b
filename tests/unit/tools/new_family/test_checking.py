"""What is wrong with a config, in one sentence that names the field."""

import pytest

from conformance.core.errors import AdoptionError
from conformance.tools.new_family.checking import examine
from conformance.tools.new_family.shrink import shrink


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"hidden_size": "4096"}, "hidden_size is '4096', which is text, not a number"),
        ({"num_hidden_layers": 0}, "num_hidden_layers is 0, which is no whole number"),
        ({"num_hidden_layers": 10**9}, "more layers than any model has"),
        ({"vocab_size": -4}, "vocab_size is -4, which is no whole number"),
        ({"head_dim": -3}, "head_dim is -3, which is less than 0"),
        ({"num_attention_heads": 2.5}, "num_attention_heads is 2.5, which is no whole number"),
        ({"sliding_window": "yes"}, "sliding_window is 'yes'"),
        ({"rope_theta": float("nan")}, "rope_theta is nan, which is no finite number"),
        ({"text_config": [1]}, r"text_config is \[1\], which is no object"),
        ({"text_config": {"hidden_size": "big"}}, "text_config.hidden_size is 'big'"),
    ],
)
def test_a_bad_field_is_named(change, words, published):
    config = published("Qwen3-8B") | change
    with pytest.raises(AdoptionError, match=words):
        examine(config)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"num_key_value_heads": 5}, "num_attention_heads 32 is no multiple of num_key_value"),
        ({"num_experts_per_tok": 500}, "num_experts_per_tok 500 is more than the 128 experts"),
        ({"layer_types": ["full_attention"] * 3}, "layer_types has 3 entries"),
    ],
)
def test_a_contradiction_is_named(change, words, published):
    with pytest.raises(AdoptionError, match=words):
        shrink(published("Qwen3-30B-A3B") | change)


def test_what_is_published_is_not_complained_of(published):
    for name in ("Nemotron-H-8B", "gpt-oss-20b", "Mamba-Codestral-7B", "gemma-3n-E2B-text"):
        examine(published(name))
