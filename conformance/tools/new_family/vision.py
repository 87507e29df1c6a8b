"""Rules for vision and audio towers: few small blocks, small images of few patches."""

from __future__ import annotations

from typing import Any

from conformance.tools.new_family.draft import Fields, Tower
from conformance.tools.new_family.widths import FEED, HEADS, WIDTH, few

BLOCKS = 3
PATCH = 4
SIDE = 4
"""Places along one side of an image, after merging patches."""

DEPTHS = ("depth", "num_hidden_layers", "n_layers", "layers", "num_layers")
WIDTHS = ("hidden_size", "embed_dim", "out_hidden_size", "width", "vision_output_dim")
HEAD_COUNTS = ("num_heads", "num_attention_heads", "attention_heads", "num_key_value_heads")
FEEDS = ("intermediate_size", "mlp_dim")
PATCHES = ("patch_size", "spatial_patch_size")
MERGES = (
    "spatial_merge_size",
    "scale_factor",
    "downsample_factor",
    "merge_kernel_size",
    "downsample_ratio",
    "pixel_shuffle_ratio",
)
"""Fields with the factor by which merging shrinks a side, in patches, or with its inverse."""
BLOCK_LISTS = ("deepstack_visual_indexes", "fullatt_block_indexes", "intermediate_layers_indices")


def blocks(tower: Tower) -> None:
    """Use three blocks; lists of block indices name the first two, or the middle one."""
    original = tower.number(*DEPTHS)
    if original is None:
        return
    tower.put(DEPTHS, min(original, BLOCKS), "few blocks")
    for place, key, value in tower.each(*BLOCK_LISTS):
        small = [0, 1] if key != "fullatt_block_indexes" else [1]
        tower.draft.put(place, key, small[: len(value)], "blocks that there are")


def sizes(tower: Tower) -> None:
    """Use the tiny widths of the language model."""
    why = "a tiny width, that of the language model"
    tower.cap(WIDTHS, WIDTH, why)
    for place, key, value in tower.each(*HEAD_COUNTS):
        if isinstance(value, int):
            tower.draft.put(place, key, few(value), "few heads")
    tower.cap(("head_dim",), WIDTH // HEADS, "width / heads")
    tower.cap(FEEDS, FEED, "a tiny feed-forward")
    tower.cap(("mlp_ratio",), 2, "a tiny feed-forward")
    own = tower.places[0]
    for key in ("projection_dim", "vocab_size"):
        if isinstance(own.original.get(key), int):
            tower.draft.put(own, key, WIDTH, "a tiny size, not used here")


def pictures(tower: Tower) -> None:
    """Use patches of 4 pixels; an image has 4 x 4 places after merging."""
    merge = merging(tower)
    side = SIDE * merge
    for place, key, value in tower.each(*PATCHES):
        tower.draft.put(place, key, _like(value, PATCH), "small patches for small images")
    for place, key, value in tower.each("image_size"):
        pixels = _like(value, PATCH * side)
        tower.draft.put(place, key, pixels, f"{side} x {side} patches")
    tower.cap(("num_position_embeddings", "num_patches"), side * side, "one for each patch")
    tower.cap(("window_size",), 2 * PATCH * merge, "several windows to an image")
    for place, key, value in tower.each("max_image_size", "size"):
        if isinstance(value, dict):
            edge = PATCH * side * (1 if key == "max_image_size" else 2)
            tower.draft.put(place, key, dict.fromkeys(value, edge), "a tile, or two by two of them")
    tower.sizes["image"] = PATCH * side
    tower.sizes["merge"] = merge


def merging(tower: Tower) -> int:
    """The number of patches along one side that become one place, by the config."""
    original = tower.get(*MERGES)
    if isinstance(original, list) and original:
        original = original[0]
    if isinstance(original, float) and 0 < original < 1:
        original = round(1 / original)
    if original is None and tower.number("mm_tokens_per_image"):
        return 2
    return min(original, 4) if isinstance(original, int) and original > 0 else 1


def places_of_images(tower: Tower) -> None:
    """Set the number of tokens for one image, if the config gives it."""
    for place, key, value in tower.each("mm_tokens_per_image", "image_seq_length"):
        if isinstance(value, int):
            small = min(value, SIDE * SIDE)
            tower.draft.put(place, key, small, "places of a small image")


def shrunk_files(files: dict[str, Fields], sizes: dict[str, int]) -> dict[str, Fields]:
    """The processor's files with the sizes of the shrunk vision tower."""
    return {name: _shrunk_file(fields, sizes) for name, fields in files.items()}


def _shrunk_file(fields: Fields, sizes: dict[str, int]) -> Fields:
    image, merge = sizes["image"], sizes["merge"]
    small: Fields = {}
    for key, value in fields.items():
        if key in ("size", "crop_size") and isinstance(value, dict):
            small[key] = {name: image * _edges(name, value, fields) for name in value}
        elif key == "max_image_size" and isinstance(value, dict):
            small[key] = dict.fromkeys(value, image)
        elif key in ("size", "crop_size", "image_size", "img_size"):
            small[key] = image
        elif key == "patch_size":
            small[key] = (
                dict.fromkeys(value, PATCH) if isinstance(value, dict) else _like(value, PATCH)
            )
        elif key == "min_pixels":
            small[key] = (PATCH * merge) ** 2
        elif key == "max_pixels":
            small[key] = (PATCH * merge * SIDE * 4) ** 2
        elif key in ("image_seq_len", "image_seq_length", "num_image_tokens"):
            small[key] = (image // PATCH // merge) ** 2
        else:
            small[key] = _shrunk_file(value, sizes) if isinstance(value, dict) else value
    return small


def _edges(name: str, value: Fields, fields: Fields) -> int:
    """The number of tiles along the longest edge: two if images are cut into tiles."""
    return 2 if name == "longest_edge" and "max_image_size" in fields and len(value) == 1 else 1


def _like(value: Any, size: int) -> Any:
    return [size] * len(value) if isinstance(value, list) else size
