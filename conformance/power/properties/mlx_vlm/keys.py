"""Properties of the keys of what mlx-vlm keeps, and of random numbers: others for others."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import product
from typing import Any

import numpy as np
from PIL import Image

from conformance.core.properties import Property
from conformance.plugins.mlx_vlm import compat

_SIDES = (6, 4)  # of a picture, in pixels


def key_properties() -> list[Property]:
    """Each kind of key, for things that differ little."""
    pictures = ("VisionFeatureCache.*",)
    made = ("keys: features of pictures", "mlx_vlm/vision_cache.py", pictures, _pictures)
    sizes = ("keys: features of a picture of other sides", made[1], pictures, _sides)
    folders = ("keys: files of kept prefixes", "mlx_vlm/apc.py", ("apc_disk_namespace",), _folders)
    seeds = ("keys: random numbers", "mlx_vlm/generate/ar.py", ("_position_seed",), _seeds)
    media = ("keys: prefixes behind all media", folders[1], ("media_safe_prefix_min",), _behind)
    return [Property(*each) for each in (made, sizes, folders, seeds, media)]


def _apart(named: Iterable[tuple[str, object]]) -> Iterator[str]:
    """A sentence for each key that came before."""
    seen: dict[object, str] = {}
    for name, key in named:
        if key in seen:
            yield f"{name} has the key of {seen[key]}"
        seen[key] = name


def _keys_of(pictures: dict[str, Any]) -> Iterator[tuple[str, object]]:
    store = compat.part("vision_cache").VisionFeatureCache()
    for name, picture in pictures.items():
        store.put(picture, name)
        yield name, store._make_key(picture)
        if store.get(picture.copy()) != name:
            yield f"the same as {name}", store._make_key(picture)


def _pictures() -> Iterator[str]:
    """Pictures of one size that differ in a pixel, in their order or in colour alone."""
    noise = np.random.default_rng(0).integers(0, 255, (*_SIDES, 3), np.uint8)
    last = noise.copy()
    last[-1, -1, -1] += 1
    shown = {"one": noise, "one of another last pixel": last, "its mirror image": noise[:, ::-1]}
    made = {name: Image.fromarray(np.ascontiguousarray(one)) for name, one in shown.items()}
    plain = {"red": (255, 0, 0), "a green as bright": (0, 130, 0), "a gray as bright": (76,) * 3}
    made |= {name: Image.new("RGB", _SIDES, colour) for name, colour in plain.items()}
    yield from _apart(_keys_of(made))


def _sides() -> Iterator[str]:
    """A picture of one colour, and the same with its sides exchanged."""
    sizes = {"a picture": _SIDES, "the same with its sides exchanged": _SIDES[::-1]}
    yield from _apart(_keys_of({name: Image.new("RGB", size) for name, size in sizes.items()}))


def _folders() -> Iterator[str]:
    """Files of another model, adapter, other weights or bits are elsewhere."""
    place = compat.part("apc").apc_disk_namespace
    others: dict[str, object] = {
        "adapter_path": "/a",
        "weights_fingerprint": "new",
        "kv_bits": 4,
        "kv_group_size": 32,
        "kv_quant_scheme": "turboquant",
        "quantized_kv_start": 9,
    }
    usual = {"kv_bits": 8, "kv_key_bits": None, "kv_value_bits": None}
    made = [(name, place("/m", **usual | {name: value})) for name, value in others.items()]
    yield from _apart(
        [("the usual", place("/m", **usual)), ("another", place("/n", **usual)), *made]
    )


def _seeds() -> Iterator[str]:
    """Each row has other random numbers at each of 1,500 positions, and with another seed."""
    seed_of = compat.part("generate.ar")._position_seed
    places = product((0, 7), range(3), range(1500))
    yield from _apart((f"seed, row, position {place}", seed_of(*place)) for place in places)


def _behind() -> Iterator[str]:
    """What is kept of a prompt ends behind its last medium, whichever token stands for it."""
    least = compat.part("apc").media_safe_prefix_min
    text, picture, sound = [1] * 4, [9] * 4, [8] * 3
    prompts: tuple[list[list[int]], ...] = (
        [],
        [picture],
        [picture, sound],
        [sound, picture, picture],
    )
    for media in prompts:
        tokens = [token for medium in media for token in text + medium]
        found = least([*tokens, *text], [9, 8])
        if found != len(tokens):
            yield f"behind {len(media)} media it may end at {found}, not at {len(tokens)}"
