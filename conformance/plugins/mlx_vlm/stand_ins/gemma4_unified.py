"""The stand-in for the processor of ``gemma4_unified``: the library's own parts, made small.

``mlx_vlm.load`` puts an image processor of default sizes in place of the configured one, which
makes about 280 tokens of every image.
"""

from __future__ import annotations

from typing import Any

import mlx.core as mx
import numpy as np

from conformance.core.schedule import Media
from conformance.plugins.mlx_vlm.media import draw
from conformance.plugins.mlx_vlm.stand_ins.parts import Parts, inputs, joined


def process(args: dict[str, Any], parts: Parts) -> dict[str, Any]:
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
