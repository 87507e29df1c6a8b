"""Stand-ins that keep each image whole, or turn it into patches and their grid."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import mlx.core as mx
import numpy as np

from conformance.core.schedule import Media
from conformance.plugins.mlx_vlm.media import draw
from conformance.plugins.mlx_vlm.stand_ins.parts import (
    Parts,
    images,
    inputs,
    joined,
    scaled,
    square,
    text,
)


def grids(args: dict[str, Any], parts: Parts) -> dict[str, Any]:
    """Ids, patches and grids of the library's image processor, for which no tokenizer exists.

    Each image is a run: its first token, one for each cell of its grid, its last token.

    Args:
        args: ``module`` and ``name`` of the library's image processor, its ``options``; the ids
            ``token``, ``start`` and ``end``; ``merge``, the side of the square of patches that
            becomes a token.
    """
    return _grids(args, parts, lambda height, width: height * width)


def hunyuan_vl(args: dict[str, Any], parts: Parts) -> dict[str, Any]:
    """As ``HunYuanVLProcessor``: one more token for each row, two for each image; four positions.

    Args:
        args: as for ``grids``.
    """
    made = _grids(args, parts, lambda height, width: height * (width + 1) + 2)
    ids = np.array(made["input_ids"])
    positions = np.stack([np.arange(ids.shape[-1])] * 4)
    starts = np.where(ids[0] == args["start"])[0]
    ends = np.where(ids[0] == args["end"])[0]
    for start, (_, height, width) in zip(starts, made["image_grid_thw"].tolist(), strict=True):
        rows, columns = height // args["merge"], width // args["merge"] + 1
        cells = slice(start + 2, start + 2 + rows * columns)
        positions[1, cells] = np.tile(np.arange(columns), rows)
        positions[2, cells] = np.repeat(np.arange(rows), columns)
        positions[3, cells] = 0
    inside = [[int(start) + 1, int(end)] for start, end in zip(starts, ends, strict=True)]
    return {**made, "position_ids": mx.array(positions)[None], "imgs_pos": mx.array([inside])}


def spatial_shapes(args: dict[str, Any], parts: Parts) -> dict[str, Any]:
    """As the processor of Youtu-VL: one row of patches for all images, and each one's grid.

    Args:
        args: as for ``grids``.
    """
    made = grids(args, parts)
    shapes = made.pop("image_grid_thw")[:, 1:]
    return {**made, "pixel_values": made["pixel_values"][None], "spatial_shapes": shapes}


def falcon(args: dict[str, Any], parts: Parts) -> dict[str, Any]:
    """As the processors of the Falcon models, which put sentences of their own around images.

    Pixels ``[images, height, width, 3]`` within +-1, grids ``[images, 2]``.

    Args:
        args: the side of a ``patch`` in pixels, of which the sizes of images are multiples; the
            ids ``before``, ``token`` and ``end``.
    """
    pixels = [scaled(image) for image in images(parts)]
    shapes = [[side // args["patch"] for side in one.shape[:2]] for one in pixels]
    runs = [
        [*args["before"], *[args["token"]] * (rows * columns), args["end"]]
        for rows, columns in shapes
    ]
    return inputs(
        joined(parts, runs),
        pixel_values=mx.array(np.stack(pixels)),
        image_grid_hw=mx.array(shapes, mx.int32),
    )


def naflex(args: dict[str, Any], parts: Parts) -> dict[str, Any]:
    """As ``Phi4SigLipProcessor``: one id for each image; patches, their mask and their grid.

    Its image processor needs packages that are not installed. The patches come from the library's
    image processor of ``phi4mm``, which like the checkpoint's own neither enlarges an image beyond
    ``min_patches`` nor shrinks it within ``max_patches``.

    Args:
        args: the id ``token``; ``patch``, the side of a patch; ``min_patches``; ``max_patches``.
    """
    library: Any = importlib.import_module("mlx_vlm.models.phi4mm.processing_phi4mm")
    processor = library.Phi4MMImageProcessor(
        patch_size=args["patch"],
        min_num_patches=args["min_patches"],
        max_num_patches=args["max_patches"],
    )
    shown = images(parts)
    ids = joined(parts, [[args["token"]]] * len(shown))
    return inputs(ids, **dict(processor(shown).items()))


def _grids(args: dict[str, Any], parts: Parts, count: Callable[[int, int], int]) -> dict[str, Any]:
    """As ``grids``, with ``count(height, width)`` tokens between an image's first and last."""
    kind: Any = getattr(importlib.import_module(args["module"]), args["name"])
    processor = kind(**args["options"])
    runs, pixels, shapes = [], [], []
    for image in images(parts):
        made = processor.preprocess([image])
        pixels.append(np.asarray(made["pixel_values"], dtype=np.float32))
        shapes.append(np.asarray(made["image_grid_thw"])[0])
        height, width = (int(side) // args["merge"] for side in shapes[-1][1:])
        runs.append([args["start"], *[args["token"]] * count(height, width), args["end"]])
    return inputs(
        joined(parts, runs),
        pixel_values=mx.array(np.concatenate(pixels)),
        image_grid_thw=mx.array(np.stack(shapes)),
    )


def fixed(args: dict[str, Any], parts: Parts) -> dict[str, Any]:
    """Pixels ``[images, 3, size, size]`` or, with ``channels_last``, ``[images, size, size, 3]``.

    Args:
        args: ``size``, the side of the square that an image becomes; its ``tokens``, all of the id
            ``token``; ``channels_last``.
    """
    shown = images(parts)
    ids = joined(parts, [[args["token"]] * args["tokens"]] * len(shown))
    pixels = np.stack([square(image, args["size"]) for image in shown])
    if args.get("channels_last", False):
        pixels = pixels.transpose(0, 2, 3, 1)
    return inputs(ids, pixel_values=mx.array(pixels))


def florence2(args: dict[str, Any], parts: Parts) -> dict[str, Any]:
    """As ``Florence2Processor``: the tokens of the image before all text, the image on a square.

    Left out: the ids 0 and 2 around the text.

    Args:
        args: ``size``, the side of the square that an image becomes, and its ``tokens``; the ids'
            ``token``.
    """
    shown = images(parts)
    ids = [args["token"]] * (args["tokens"] * len(shown)) + text(parts)
    pixels = [normalised(image.resize((args["size"],) * 2)) for image in shown]
    return inputs(ids, pixel_values=mx.stack(pixels).astype(mx.float32))


def got(args: dict[str, Any], parts: Parts) -> dict[str, Any]:
    """As ``GotOcrProcessor`` with its image processor; without the conversation around the prompt.

    Args:
        args: ``size``, the side of the square that an image becomes, and its ``tokens``; the ids
            ``token``, ``start`` and ``end``.
    """
    library: Any = importlib.import_module("mlx_vlm.models.got.processing_got")
    shown = images(parts)
    run = [args["start"], *[args["token"]] * args["tokens"], args["end"]]
    pixels = library.GotOcrImageProcessor(args["size"])(shown)["pixel_values"]
    return inputs(joined(parts, [run] * len(shown)), pixel_values=mx.array(pixels))


def whole_page(args: dict[str, Any], parts: Parts) -> dict[str, Any]:
    """As ``NemotronParseProcessor``: the image shrunk and centred on a page; no token of its own.

    Args:
        args: ``size``, the page's height and width.
    """
    name = "mlx_vlm.models.nemotron_parse.processing_nemotron_parse"
    library: Any = importlib.import_module(name)
    processor = library.NemotronParseImageProcessor(final_size=args["size"])
    pixels = processor(images(parts))["pixel_values"].astype(np.float32)
    return inputs(text(parts), pixel_values=mx.array(pixels))


def normalised(image: Any) -> mx.array:
    """bfloat16 ``[3, height, width]`` within +-1, like DeepSeek-OCR's ``ImageTransform``."""
    pixels = np.asarray(image.convert("RGB"), dtype=np.float32).transpose(2, 0, 1)
    return ((mx.array(pixels) / 255 - 0.5) / 0.5).astype(mx.bfloat16)


# ``mlx_vlm.load`` puts an image processor of default sizes in place of the configured one of
# ``gemma4_unified``, which makes about 280 tokens of every image.
def gemma4_patches(args: dict[str, Any], parts: Parts) -> dict[str, Any]:
    """As ``Gemma4UnifiedProcessor``, without the time stamps before the frames of a video.

    Args:
        args: the ids of the media's tokens; ``patch_size``, ``pooling_kernel_size`` and
            ``max_soft_tokens`` of images and frames; ``samples_per_token`` of sound.
    """
    media: dict[str, list[Any]] = {"image": [], "video": [], "audio": []}
    for part in parts:
        if isinstance(part, Media):
            drawn: Any = draw(part)
            media[part.kind].append(drawn.transpose(0, 3, 1, 2) if part.kind == "video" else drawn)
    data, counts = _features(args, media)
    runs: list[list[int]] = []
    for part in parts:
        if isinstance(part, Media):
            start, stop = ("boa", "eoa") if part.kind == "audio" else ("boi", "eoi")
            frames, tokens = counts[part.kind].pop(0)
            runs.append([args[start], *[args[part.kind]] * tokens, args[stop]] * frames)
    ids = joined(parts, runs)
    kinds = {args["image"]: 1, args["video"]: 2, args["audio"]: 3}
    data["mm_token_type_ids"] = np.array([[kinds.get(token, 0) for token in ids]], np.int32)
    return inputs(ids, **{name: mx.array(value) for name, value in data.items()})


def _features(
    args: dict[str, Any], media: dict[str, list[Any]]
) -> tuple[dict[str, Any], dict[str, list[tuple[int, int]]]]:
    """The arrays by name, and for each kind of media the runs of tokens and their length."""
    from mlx_vlm.models.gemma4_unified import processing_gemma4_unified as library  # noqa: PLC0415

    sizes = {name: args[name] for name in ("patch_size", "pooling_kernel_size")}
    data: dict[str, Any] = {}
    counts: dict[str, list[tuple[int, int]]] = {}
    if media["image"]:
        small = library.Gemma4UnifiedImageProcessor(
            max_soft_tokens=args["max_soft_tokens"], **sizes
        )
        found, tokens = small(media["image"])
        data |= {name: found[name] for name in ("pixel_values", "image_position_ids")}
        counts["image"] = [(1, count) for count in tokens]
    if media["video"]:
        # Frames keep their size: the smallest budget of the library is 70 tokens a frame.
        found = library.Gemma4UnifiedVideoProcessor(do_resize=False, **sizes)(media["video"])
        data |= {name: found[name] for name in ("pixel_values_videos", "video_position_ids")}
        runs = zip(found["num_frames_per_video"], found["num_soft_tokens_per_frame"], strict=True)
        counts["video"] = list(runs)
    if media["audio"]:
        extract = library.Gemma4UnifiedAudioFeatureExtractor(
            audio_samples_per_token=args["samples_per_token"]
        )
        data |= dict(extract(media["audio"]))
        counts["audio"] = [(1, int(mask.sum())) for mask in data["input_features_mask"]]
    return data, counts
