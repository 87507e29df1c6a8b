"""Draws images, videos and sounds from their descriptions, equal on every platform."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image

from conformance.core.errors import ScheduleError
from conformance.core.schedule import Media

_RATE = 16000
# Turns a byte of a pixel, its last one, into one that is far from it.
_OTHER = 0x80
# Two values far from each other, and from where rounding to a power of two would part them from
# values 5% above.
_DARK, _LIGHT = 40, 200
_LIGHTER, _SECOND, _GRAY, _PLAIN = 2, {3: 0, 4: 1}, 5, 6


def draw(media: Media) -> Any:
    """The medium in the form that a caller would pass.

    Returns:
        image: a PIL image; video: uint8 ``[frames, height, width, 3]``; audio: float32
        ``[samples]`` within +-1.

    Raises:
        ScheduleError: the kind is unknown, or its size needs another number of values.
    """
    makers: dict[str, tuple[Callable[[Media], Any], int]] = {
        "image": (_image, 2),
        "video": (_video, 3),
        "audio": (_audio, 1),
    }
    if media.kind not in makers:
        raise ScheduleError(f"media of kind {media.kind!r}; there are {', '.join(makers)}")
    make, count = makers[media.kind]
    if len(media.size) != count or min(media.size) < 1:
        raise ScheduleError(f"{media.kind} of size {media.size}; it needs {count} positive numbers")
    return make(media)


def _image(media: Media) -> Image.Image:
    width, height = media.size
    pixels = _bytes(media, (height, width, 3))
    if media.tones:
        pixels = _toned(pixels, media.tones)
    if media.twin:
        pixels[-1, -1, -1] ^= _OTHER
    if media.mirrored:
        pixels = np.ascontiguousarray(pixels[::-1, ::-1])
    return Image.fromarray(pixels)


def _toned(pixels: npt.NDArray[np.uint8], tones: int) -> npt.NDArray[np.uint8]:
    """Each value is one of two, or a brightness of such values; see ``Media.tones``."""
    light = pixels >= (0 if tones == _PLAIN else _OTHER)
    if tones in _SECOND:
        light[:, _SECOND[tones] :: 2] ^= True
    values = (_DARK, _LIGHT) if tones != _LIGHTER else (_DARK * 21 // 20, _LIGHT * 21 // 20)
    made = np.where(light, values[1], values[0]).astype(np.uint8)
    return np.asarray(Image.fromarray(made).convert("L").convert("RGB")) if tones == _GRAY else made


def _video(media: Media) -> npt.NDArray[np.uint8]:
    frames, width, height = media.size
    pixels = _bytes(media, (frames, height, width, 3))
    if media.twin:
        pixels[-1, -1, -1, -1] ^= _OTHER
    return np.ascontiguousarray(pixels[::-1, ::-1, ::-1]) if media.mirrored else pixels


def _audio(media: Media) -> npt.NDArray[np.float32]:
    """Three tones, so that a spectrogram is not flat, and a little noise."""
    (samples,) = media.size
    raw = _bytes(media, (samples + 3,)).astype(np.float64) / 255
    time = np.arange(samples) / _RATE
    tones = [np.sin(2 * np.pi * (100 + 3000 * pitch) * time) for pitch in raw[:3]]
    noise = raw[3:] - 0.5
    wave: npt.NDArray[np.float32] = (0.25 * sum(tones) + 0.1 * noise).astype(np.float32)
    if media.twin:
        wave[-1] = -wave[-1]
    return np.ascontiguousarray(wave[::-1]) if media.mirrored else wave


def _bytes(media: Media, shape: tuple[int, ...]) -> npt.NDArray[np.uint8]:
    name = f"{media.kind}\n{media.size}\n{media.content}".encode()
    key = int.from_bytes(hashlib.sha256(name).digest()[:16], "little")
    raw = np.asarray(np.random.Philox(key=key).random_raw(int(np.prod(shape))), dtype=np.uint64)
    return (raw >> np.uint64(56)).astype(np.uint8).reshape(shape)
