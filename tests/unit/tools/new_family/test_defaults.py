"""Sizes that a config leaves to the library."""

from conformance.tools.new_family.shrink import shrink

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
