"""Prompts of text and media: the stand-ins' arguments and results."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import mlx.core as mx
import numpy as np
from PIL import Image

from conformance.core.schedule import Media
from conformance.plugins.mlx_vlm.media import draw

Parts = Sequence[tuple[int, ...] | Media]


def images(parts: Parts) -> list[Image.Image]:
    """The drawn images of a prompt."""
    return [draw(part) for part in parts if isinstance(part, Media)]


def text(parts: Parts) -> list[int]:
    """The tokens of a prompt without its media."""
    return [token for part in parts if not isinstance(part, Media) for token in part]


def tokens_of(parts: Parts, runs: Iterable[Sequence[int]]) -> list[list[int]]:
    """The token ids of each part; a medium has the next of ``runs``."""
    following = iter(runs)
    return [list(next(following) if isinstance(part, Media) else part) for part in parts]


def joined(parts: Parts, runs: Iterable[Sequence[int]]) -> list[int]:
    """The token ids of the whole prompt; see ``tokens_of``."""
    return [token for tokens in tokens_of(parts, runs) for token in tokens]


def inputs(ids: list[int], **others: Any) -> dict[str, Any]:
    """A processor's output: int32 ``input_ids`` ``[1, length]``, and ``others`` unchanged."""
    return {"input_ids": mx.array(ids, mx.int32)[None], **others}


def scaled(image: Image.Image) -> np.ndarray:
    """The image as float32 ``[height, width, 3]`` within +-1."""
    return np.asarray(image.convert("RGB"), dtype=np.float32) / 127.5 - 1


def square(image: Image.Image, side: int) -> np.ndarray:
    """The image resized to a square, float32 ``[3, side, side]`` within +-1."""
    return scaled(image.convert("RGB").resize((side, side))).transpose(2, 0, 1)
