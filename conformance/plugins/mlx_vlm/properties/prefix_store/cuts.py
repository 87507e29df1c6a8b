"""Where mlx-vlm cuts prompts: by what they share, and never before media."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np

from conformance.core.properties import Property
from conformance.plugins.mlx_vlm import compat

apc: Any = compat.part("apc")

_FILE = "mlx_vlm/apc.py"


def cut_properties() -> list[Property]:
    """Those of the functions that look for media, and for what prompts share."""
    media = ("*media*", "adjust_prefix_*", "multimodal_*", "prefix_*")
    return [
        Property("media: where prompts are cut", _FILE, media, _cuts),
        Property("media: tokens of a config", _FILE, media, _configs),
        Property("prefixes: shared", _FILE, ("_checkpoint_match_len",), _shared),
    ]


def _cuts() -> Iterator[str]:
    """Every prompt of few tokens, with each of two media tokens and with none."""
    draw = np.random.default_rng(0)
    for _ in range(60):
        tokens = draw.integers(0, 4, draw.integers(0, 9)).tolist()
        for ids in ((), (2,), (2, 3)):
            at = [n for n, token in enumerate(tokens) if token in ids]
            spans = [
                (a, next(b for b in range(a, len(tokens) + 1) if b not in at))
                for a in at
                if a - 1 not in at
            ]
            if list(apc.media_token_spans(tokens, ids)) != spans:
                yield f"media of {tokens} are at {apc.media_token_spans(tokens, ids)}"
            least = max((end for _, end in spans), default=0)
            if apc.media_safe_prefix_min(tokens, ids) != least:
                yield f"{tokens} may be cut at {apc.media_safe_prefix_min(tokens, ids)}"
            for n in range(-1, 10):
                if apc.prefix_leaves_text_only_suffix(tokens, n, ids) != (n >= least):
                    yield f"whether {tokens} after {n} is text"
                has = any(i < n for i in at)
                if apc.prefix_contains_media_tokens(tokens, n, ids) != has:
                    yield f"whether {tokens} up to {n} holds media"
                for most in (None, *range(10)):
                    bound = len(tokens) - 1 if most is None else most
                    cut = max(n, least)
                    wanted = cut if n > 0 and bound > 0 and cut <= bound else 0
                    got = apc.adjust_prefix_to_text_suffix_boundary(
                        tokens, n, ids, max_prefix_tokens=most
                    )
                    if got != wanted:
                        yield f"{tokens} to be cut at {n}, at most {most}: {got}"


def _configs() -> Iterator[str]:
    names = ("image_token_id", "image_token_index", "video_token_id", "video_token_index")
    for number, name in enumerate(names, start=4):
        got = apc.multimodal_token_ids_from_config(SimpleNamespace(**{name: str(number)}))
        if got != {number}:
            yield f"media tokens of {name} are {got}"
    every = SimpleNamespace(image_token_id=0, video_token_id=2, audio_token_id=3, pad_token_id=4)
    if apc.multimodal_token_ids_from_config(every) != {0, 2}:
        yield f"media tokens are {apc.multimodal_token_ids_from_config(every)}"
    deep: dict[str, Any] = {"model_type": "deepseek_v4", "vocab_size": 50}
    for more, wanted in (
        ({"vision_n_layers": 1}, set(range(50, 55))),
        ({"vision_n_layers": 0}, set()),
        ({"vision_n_layers": None}, set()),
        ({}, set()),
        ({"vision_n_layers": 2, "model_type": "other"}, set()),
        ({"vision_n_layers": 2, "image_token_id": 9}, {9, *range(50, 55)}),
    ):
        got = apc.multimodal_token_ids_from_config(SimpleNamespace(**{**deep, **more}))
        if got != wanted:
            yield f"media tokens with {more} are {got}"


def _shared() -> Iterator[str]:
    """All of what is stored or, where it can be cut, the longest whole blocks."""
    draw = np.random.default_rng(1)
    for _ in range(150):
        stored = tuple(draw.integers(0, 2, draw.integers(1, 12)).tolist())
        tokens = (*stored[: draw.integers(0, len(stored) + 1)], *draw.integers(0, 2, 3).tolist())
        for most in (0, 3, 5, len(stored), 20):
            for size in (1, 2, 4):
                for cut in (True, False):
                    whole = len(stored) <= most and tokens[: len(stored)] == stored
                    ends = range(0, min(most, len(stored)) + 1, size)
                    part = max(n for n in ends if tokens[:n] == stored[:n]) if cut else 0
                    wanted = len(stored) if whole else part
                    got = apc._checkpoint_match_len(tokens, stored, most, size, cut)
                    if got != wanted:
                        yield f"of {stored}, {tokens} shares {got} tokens, not {wanted}"
