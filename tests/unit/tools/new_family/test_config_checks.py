"""What is wrong with a config, in one sentence that names the field."""

import pytest

from conformance.core.errors import AdoptionError
from conformance.tools.new_family.config_checks import examine
from conformance.tools.new_family.shrink import shrink


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"hidden_size": "4096"}, "hidden_size is '4096', which is text, not a number"),
        ({"num_hidden_layers": 0}, "num_hidden_layers is 0, which is not a whole number"),
        ({"num_hidden_layers": 10**9}, "more layers than any model has"),
        ({"vocab_size": -4}, "vocab_size is -4, which is not a whole number"),
        ({"head_dim": -3}, "head_dim is -3, which is less than 0"),
        ({"num_attention_heads": 2.5}, "num_attention_heads is 2.5, which is not a whole number"),
        ({"sliding_window": "yes"}, "sliding_window is 'yes'"),
        ({"rope_theta": float("nan")}, "rope_theta is nan, which is not a finite number"),
        ({"text_config": [1]}, r"text_config is \[1\], which is not an object"),
        ({"text_config": {"hidden_size": "big"}}, "text_config.hidden_size is 'big'"),
    ],
)
def test_a_bad_field_is_named(change, message, published):
    config = published("Qwen3-8B") | change
    with pytest.raises(AdoptionError, match=message):
        examine(config)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"num_key_value_heads": 5}, "num_attention_heads 32 is not a multiple of num_key_value"),
        (
            {"num_experts_per_tok": 500},
            "num_experts_per_tok 500 is more than the number of experts, 128",
        ),
        ({"layer_types": ["full_attention"] * 3}, "layer_types has 3 entries"),
    ],
)
def test_a_contradiction_is_named(change, message, published):
    with pytest.raises(AdoptionError, match=message):
        shrink(published("Qwen3-30B-A3B") | change)


def test_what_is_published_is_not_complained_of(published):
    for name in ("Nemotron-H-8B", "gpt-oss-20b", "Mamba-Codestral-7B", "gemma-3n-E2B-text"):
        examine(published(name))


# Sizes that a config leaves to the library --------------------------------------------------------

BARE = {"model_type": "m", "text_config": {"model_type": "t", "hidden_size": 2560, "n": 3}}
SETTINGS = (
    {"model_type": "other", "hidden_size": 1, "num_hidden_layers": 99, "vocab_size": 9},
    {
        "model_type": "t",
        "hidden_size": 2560,
        "n": 3,
        "num_hidden_layers": 34,
        "vocab_size": 262208,
        "num_attention_heads": 8,
        "num_key_value_heads": 4,
        "rope_theta": 1e6,
    },
)


def test_defaults_of_the_settings_that_agree_are_filled_in_and_made_small():
    small = shrink(BARE, settings=SETTINGS)
    text = small.config["text_config"]
    assert text["num_hidden_layers"] == 4
    assert text["vocab_size"] == 256
    assert (text["num_attention_heads"], text["num_key_value_heads"]) == (4, 2)
    assert "rope_theta" not in text, "what is no size stays the library's"
    decision = {d.field: d for d in small.decisions}["text_config.num_hidden_layers"]
    assert decision.before == 34
    assert "left it to the library" in decision.why
