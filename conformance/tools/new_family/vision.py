"""Rules for towers that see or hear: few small blocks, small images of few patches."""

from __future__ import annotations

from typing import Any

from conformance.tools.new_family.draft import Fields, Tower
from conformance.tools.new_family.widths import FEED, HEADS, WIDTH, few

BLOCKS = 3
PATCH = 4
SIDE = 4
"""Places along one side of an image, after patches were merged."""

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
"""By how many patches a side shrinks; ratios are one over it."""
BLOCK_LISTS = ("deepstack_visual_indexes", "fullatt_block_indexes", "intermediate_layers_indices")


def blocks(tower: Tower) -> None:
    """Three blocks: lists of blocks name the first two, or the middle one."""
    said = tower.number(*DEPTHS)
    if said is None:
        return
    tower.put(DEPTHS, min(said, BLOCKS), "few blocks")
    for place, key, value in tower.each(*BLOCK_LISTS):
        small = [0, 1] if key != "fullatt_block_indexes" else [1]
        tower.draft.put(place, key, small[: len(value)], "blocks that there are")


def sizes(tower: Tower) -> None:
    """Tiny widths; what is as wide as the language model stays as wide as it."""
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
        if isinstance(own.said.get(key), int):
            tower.draft.put(own, key, WIDTH, "a tiny size of what is not used here")


def pictures(tower: Tower) -> None:
    """Patches of 4 pixels; as many that an image is 4 x 4 places after merging."""
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
    """How many patches along one side become one place, as the config says it."""
    said = tower.get(*MERGES)
    if isinstance(said, list) and said:
        said = said[0]
    if isinstance(said, float) and 0 < said < 1:
        said = round(1 / said)
    if said is None and tower.number("mm_tokens_per_image"):
        return 2
    return min(said, 4) if isinstance(said, int) and said > 0 else 1


def places_of_images(tower: Tower) -> None:
    """How many tokens stand for one image, where the config says it."""
    for place, key, value in tower.each("mm_tokens_per_image", "image_seq_length"):
        if isinstance(value, int):
            small = min(value, SIDE * SIDE)
            tower.draft.put(place, key, small, "places of a small image")


def shrunk_files(files: dict[str, Fields], sizes: dict[str, int]) -> dict[str, Fields]:
    """The processor's files, with the sizes that the vision tower got."""
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
    """How many tiles the longest edge takes: two, where an image is cut."""
    return 2 if name == "longest_edge" and "max_image_size" in fields and len(value) == 1 else 1


def _like(value: Any, size: int) -> Any:
    return [size] * len(value) if isinstance(value, list) else size
