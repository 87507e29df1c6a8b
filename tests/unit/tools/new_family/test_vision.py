"""Towers that see, made small."""

import pytest

from conformance.tools.new_family.shrink import shrink
from conformance.tools.new_family.vision import shrunk_files

TEXT = {
    "model_type": "t",
    "hidden_size": 2048,
    "num_hidden_layers": 16,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "vocab_size": 32000,
}
SEES = {"hidden_size": 1024, "num_hidden_layers": 24, "num_attention_heads": 16, "patch_size": 14}


def made(root=(), vision=()):
    """A config of a language model and a tower, and what became of them."""
    config = {"model_type": "m", "text_config": TEXT, "vision_config": SEES | dict(vision)}
    return shrink(config | dict(root))


@pytest.mark.parametrize(
    ("root", "vision", "merge"),
    [
        ({}, {}, 1),
        ({}, {"spatial_merge_size": 2}, 2),
        ({"scale_factor": 4}, {}, 4),
        ({"downsample_ratio": 0.5}, {}, 2),
        ({}, {"merge_kernel_size": [2, 2]}, 2),
        ({"mm_tokens_per_image": 256}, {}, 2),
    ],
)
def test_an_image_is_four_by_four_places_after_merging(root, vision, merge):
    small = made(root, {"image_size": 896, **vision})
    tower = small.config["vision_config"]
    assert small.sizes == {"image": 16 * merge, "merge": merge}
    assert tower["image_size"] // tower["patch_size"] // merge == 4
    assert small.config.get("mm_tokens_per_image", 16) == 16


def test_rules_of_a_tower_leave_the_language_model_alone():
    small = shrink({**TEXT, "model_type": "m", "vision_config": SEES})
    assert small.config["num_hidden_layers"] == 4
    assert small.config["num_key_value_heads"] == 2
    assert small.config["vision_config"]["num_hidden_layers"] == 3


def test_lists_of_blocks_name_blocks_that_there_are():
    vision = {"fullatt_block_indexes": [7, 15, 23], "deepstack_visual_indexes": [5, 11, 17]}
    tower = made(vision=vision).config["vision_config"]
    assert tower["fullatt_block_indexes"] == [1]
    assert tower["deepstack_visual_indexes"] == [0, 1]


def test_the_files_of_a_processor_get_the_sizes_of_the_tower():
    files = {
        "preprocessor_config.json": {
            "size": {"height": 896, "width": 896},
            "patch_size": {"height": 14, "width": 14},
            "min_pixels": 3136,
            "image_seq_length": 256,
            "image_mean": [0.5, 0.5, 0.5],
            "inner": {"patch_size": 14},
        }
    }
    (small,) = shrunk_files(files, {"image": 32, "merge": 2}).values()
    assert small == {
        "size": {"height": 32, "width": 32},
        "patch_size": {"height": 4, "width": 4},
        "min_pixels": 64,
        "image_seq_length": 16,
        "image_mean": [0.5, 0.5, 0.5],
        "inner": {"patch_size": 4},
    }
