"""Stand-ins that put each whole image on a square or a page of one size."""

from __future__ import annotations

import importlib
from typing import Any

import mlx.core as mx
import numpy as np

from conformance.plugins.mlx_vlm.stand_ins.parts import Parts, images, inputs, joined, square, text


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
