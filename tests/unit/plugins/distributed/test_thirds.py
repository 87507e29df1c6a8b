"""Families for groups of three: what is divided, and what is left as it is."""

from pathlib import Path

import pytest

from conformance.core.family import Facts, Family, load_families
from conformance.plugins import mlx_lm
from conformance.plugins.distributed.engine import Pipeline, Pipeline3, TensorParallel3
from conformance.plugins.distributed.thirds import in_thirds
from conformance.plugins.distributed.ways import PIPELINE, TENSOR

FAMILIES = {f.name: f for f in load_families(Path(mlx_lm.__file__).parent / "families")}


def test_heads_and_widths_are_half_as_much_again_at_any_depth():
    text = {"num_attention_heads": 4, "head_dim": 16, "hidden_size": 64}
    config = {"vocab_size": 8, "text": text}
    found = in_thirds(Family("a", Facts(module="a"), config), TENSOR)
    assert found.name == "a-tensor-thirds"
    assert found.config["text"] == {"num_attention_heads": 6, "head_dim": 16, "hidden_size": 64}


def test_without_a_size_of_heads_the_hidden_size_makes_it():
    found = in_thirds(FAMILIES["qwen2"], TENSOR).config
    assert found["hidden_size"] / found["num_attention_heads"] == 16


@pytest.mark.parametrize(
    ("family", "layers"), [("qwen2", 3), ("bailing_hybrid", 9), ("llama", 4), ("qwen3_next", 4)]
)
def test_a_pipeline_of_three_has_a_layer_for_each(family, layers):
    found = in_thirds(FAMILIES[family], PIPELINE)
    assert found.config["num_hidden_layers"] == layers
    assert (found == FAMILIES[family]) == (layers == 4)


def test_one_family_has_fewer_heads_of_keys_than_processes():
    assert in_thirds(FAMILIES["qwen3_5_moe"], TENSOR).config["text_config"][
        "num_key_value_heads"
    ] == 1  # fmt: skip


def test_only_the_engines_of_three_play_them():
    qwen2 = FAMILIES["qwen2"]
    assert Pipeline.variant(qwen2) is qwen2
    assert TensorParallel3.variant(qwen2).name == "qwen2-tensor-thirds"
    assert Pipeline3.variant(qwen2).name == "qwen2-pipeline-thirds"
