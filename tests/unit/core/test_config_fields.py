"""Sizes of a config are sizes."""

import pytest

from conformance.core.config_fields import check_config
from conformance.core.errors import FamilyError


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"num_hidden_layers": 1_000_000}, "'num_hidden_layers' must be at most 4096"),
        ({"text_config": {"n_layers": 10**9}}, "text_config: the field 'n_layers'"),
        ({"text_config": []}, "'text_config' must be an object"),
        ({"vocab_size": float("inf")}, "'vocab_size' is no whole number"),
        ({"vocab_size": "many"}, "'vocab_size' is no whole number"),
        ({"hidden_size": -7}, "'hidden_size' must not be below 0"),
        ({"decoder_layers": 10**8}, "'decoder_layers' must be at most 65536"),
        ({"vision_config": {"num_blocks_per_stack": 10**8}}, "'num_blocks_per_stack' must be"),
        ({"hidden_size": 10**400}, "'hidden_size' must be at most"),
        ({"model_type": "../../x"}, "'model_type' is no name"),
        ({"model_type": "a\nb"}, "'model_type' is no name"),
    ],
)
def test_what_is_absurd_is_named(config, words):
    with pytest.raises(FamilyError, match=f"c.json: .*{words}"):
        check_config(config, "c.json", FamilyError)


def test_what_models_really_have_is_right():
    config = {"num_hidden_layers": 126, "sliding_window": None, "num_key_value_heads": [1, 2]}
    check_config({**config, "time_step_limit": [0.0, float("inf")]}, "c.json", FamilyError)
