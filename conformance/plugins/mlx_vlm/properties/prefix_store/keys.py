"""By which keys mlx-vlm finds prefixes again."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from types import SimpleNamespace
from typing import Any

import mlx.core as mx
import numpy as np
from mlx_vlm.generate.ar import BatchGenerator

from conformance.core.properties import Property
from conformance.plugins.mlx_vlm import compat

apc: Any = compat.part("apc")

_FILE = "mlx_vlm/apc.py"


def key_properties() -> list[Property]:
    """Those of the functions that hash."""
    hashes = ("*hash*", "model_key_dependencies")
    return [
        Property("keys: of prompts", _FILE, hashes, _of_prompts),
        Property("keys: of content", _FILE, hashes, _of_content),
        Property("keys: of requests", _FILE, hashes, _of_requests),
        Property("keys: of a generator", "mlx_vlm/generate/ar.py", ("*._apc_extra_hash",), _asked),
    ]


@contextmanager
def environment(**values: str) -> Iterator[None]:
    """Variables of the environment, for a while; none of this library's others."""
    before = dict(os.environ)
    for name in [n for n in os.environ if n.startswith(("APC_", "MLX_VLM_"))]:
        del os.environ[name]
    os.environ.update(values)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def _apart(what: str, made: Mapping[str, Callable[[], int]]) -> Iterator[str]:
    """No two of these are equal, and each is what it was, a number of 64 bits."""
    found: dict[int, str] = {}
    for name, make in made.items():
        key = make()
        if key != make():
            yield f"{what}: {name} has another key the second time"
        if type(key) is not int or not -(1 << 63) <= key < 1 << 64:
            yield f"{what}: {name} has the key {key!r}"
        if key in found:
            yield f"{what}: {name} and {found[key]} have one key"
        found[key] = name


_BIG = 1 << 62


def _of_prompts() -> Iterator[str]:
    """Other tokens, other lengths, other blocks before, another extra key."""
    blocks = [
        (parent, tokens, extra)
        for parent in (0, 1, -1, _BIG, 1 << 40)
        for tokens in ((1, 2, 3), (1, 2), (2, 1, 3), (1, 2, 4), (1, 2, 300), (1 << 20,))
        for extra in (0, 1, -7, _BIG, 1 << 40)
    ]
    for kind in ("sha256", "SHA256", "fast"):
        with environment(APC_HASH=kind):
            made = {str(b): partial(apc._hash_tokens, *b) for b in blocks}
            yield from _apart(f"blocks, {kind}", made)
            plain = apc._hash_tokens(1, (2, 3), 4) == hash((1, (2, 3), 4))
            if plain != (kind == "fast"):
                yield f"APC_HASH={kind} has no effect"
    with environment():
        if apc._hash_tokens(1, (2, 3), 4) != hash((1, (2, 3), 4)):
            yield "a block's key is not Python's hash by default"
    whole = [
        (tokens, extra, size)
        for tokens in ((), (1,), (1, 2), (2, 1), (1, 2, 300), (0,), (0, 0), (1 << 20,))
        for extra in (0, 1, -7, _BIG)
        for size in (4, 16, 300)
    ]
    yield from _apart("prompts", {str(w): partial(apc._sequence_hash, *w) for w in whole})
    values = [(), (0,), (0, 0), (1,), (1, 2), (2, 1), (-1,), (_BIG,), (256,), (1 << 40, 1)]
    yield from _apart("numbers", {str(v): partial(apc._stable_int_hash, *v) for v in values})


def _of_content() -> Iterator[str]:
    """Arrays by shape, dtype and each element; lists by order; texts, bytes and objects."""
    grid = np.arange(12, dtype=np.float32)
    other = grid.copy()
    other[-1] += 1e-4
    arrays: dict[str, Any] = {
        "flat": mx.array(grid),
        "rows": mx.array(grid.reshape(3, 4)),
        "columns": mx.array(grid.reshape(4, 3)),
        "other": mx.array(other),
        "whole numbers": mx.array(grid.astype(np.int32)),
        "half": mx.array(grid).astype(mx.float16),
        "short": mx.array(grid).astype(mx.bfloat16),
        "short and other": (mx.array(grid) * 2).astype(mx.bfloat16),
        "numpy, other": (grid + 1).reshape(3, 4),
        "numpy, turned": grid.reshape(3, 4).T,
        "none": mx.zeros((0, 3)),
    }
    yield from _apart(
        "arrays", {n: partial(apc._tensor_content_hash, a) for n, a in arrays.items()}
    )
    refs: dict[str, Any] = {
        "path": "a.png",
        "other": "b.png",
        "bytes": b"1234",
        "more": b"12345",
        "two": ["a.png", "b.png"],
        "turned": ["b.png", "a.png"],
        "one": ["a.png"],
        "twice": ("a.png", "a.png"),
        "number": 7,
        "nothing": None,
    }
    made = {n: partial(apc.hash_image_payload, image_ref=r) for n, r in refs.items()}
    made |= {n: partial(apc.hash_image_payload, a, "a.png") for n, a in arrays.items()}
    yield from _apart("images", made)
    if apc.hash_image_payload() != 0 or apc._hash_payload(None) is not None:
        yield "nothing has a key"
    if apc._hash_payload([None, []]) is not None or apc._hash_payload([None, 3]) is None:
        yield "a list has a key where it holds nothing, or none where it does"
    payloads = {**refs, **arrays, "nested": ["a.png", ["b.png"]], "mixed": [mx.array(grid), 2]}
    for name in ("nothing",):
        payloads.pop(name)
    yield from _apart("payloads", {n: partial(apc._hash_payload, p) for n, p in payloads.items()})
    same = apc._hash_payload(["a.png", None]), apc._hash_payload(("a.png",))
    if same[0] != same[1]:
        yield "what is nothing in a list changes its key"


class _Depends:
    def __init__(self, *given: Any) -> None:
        self._given = given

    def apc_key_dependencies(self) -> tuple[Any, ...]:
        return self._given


class _Fails:
    def apc_key_dependencies(self) -> tuple[Any, ...]:
        raise RuntimeError


def _of_requests() -> Iterator[str]:
    """By tenant, image, each of the media by its name, and what model and processor add."""
    one, other = mx.array([1.0, 2.0]), mx.array([1.0, 3.0])
    requests: dict[str, dict[str, Any]] = {
        "nothing": {},
        "tenant": {"tenant": "a"},
        "other tenant": {"tenant": "b"},
        "longer tenant": {"tenant": "ab"},
        "umlaut": {"tenant": "ä"},
        "image": {"image_hash": 5},
        "negative image": {"image_hash": -5},
        "image of tenant": {"image_hash": 5, "tenant": "a"},
        "negative image of tenant": {"image_hash": -5, "tenant": "a"},
        "audio": {"media": {"audio": one}},
        "other audio": {"media": {"audio": other}},
        "video": {"media": {"video": one}},
        "both": {"media": {"audio": one, "video": other}},
        "swapped": {"media": {"audio": other, "video": one}},
        "model": {"model": _Depends(3)},
        "other model": {"model": _Depends(4)},
        "two of a model": {"model": _Depends(3, 4)},
        "model and processor": {"model": _Depends(3), "processor": _Depends("x")},
        "processor": {"processor": _Depends("x")},
        "all": {"tenant": "a", "image_hash": 5, "media": {"audio": one}, "model": _Depends(3)},
    }
    made = {n: partial(apc.semantic_extra_hash, **r) for n, r in requests.items()}
    yield from _apart("requests", made)
    alike: list[tuple[dict[str, Any], dict[str, Any]]] = [
        ({"media": {"audio": one, "video": other}}, {"media": {"video": other, "audio": one}}),
        ({"media": {"audio": None}, "tenant": ""}, {}),
        ({"model": object(), "processor": None}, {}),
        ({"model": object(), "processor": _Depends("x")}, {"processor": _Depends("x")}),
        ({"model": _Fails(), "processor": _Depends("x")}, {"processor": _Depends("x")}),
        ({"model": _Depends(None, 3)}, {"model": _Depends(3)}),
        ({"model": SimpleNamespace(apc_key_dependencies=lambda: None)}, {}),
        ({"model": SimpleNamespace(apc_key_dependencies=5)}, {}),
    ]
    for left, right in alike:
        if apc.semantic_extra_hash(**left) != apc.semantic_extra_hash(**right):
            yield f"{left} has another key than {right}"
    if (apc.semantic_extra_hash(image_hash=5), apc.tenant_scoped_hash(None, 5)) != (5, 5):
        yield "an image's key without a tenant is another"
    if apc.tenant_scoped_hash("a", 5) != apc.semantic_extra_hash(tenant="a", image_hash=5):
        yield "a tenant's key is another where there is no more"


def _asked() -> Iterator[str]:
    """A generator's key is that of all its request's inputs, or what the server computed."""
    generator = object.__new__(BatchGenerator)
    generator.__dict__.update(apc_manager=None, model=None, processor=None, _wire_stack=None)
    hashed = generator._apc_extra_hash
    pixels, sound = mx.array([1.0, 2.0]), mx.array([3.0])
    if hashed({"pixel_values": pixels}) != 0:
        yield "a generator without prefix caching has keys"
    generator.__dict__["apc_manager"] = object()
    image = apc.hash_image_payload(pixels)
    names = {
        "input_features": "audio",
        "pixel_values_videos": "video",
        "inputs_embeds": "embeddings",
        "attention_mask": "masks",
    }
    whole = apc.semantic_extra_hash
    cases: list[tuple[Any, int]] = [
        (None, 0),
        ({}, 0),
        ({"_apc_semantic_hash": 7, "_apc_tenant": "a"}, 7),
        ({"pixel_values": pixels}, image),
        ({"_apc_image_hash": 9, "pixel_values": pixels}, 9),
        ({"_apc_tenant": "a"}, whole(tenant="a")),
        ({"_apc_tenant": "a", "_apc_image_hash": 0}, whole(tenant="a")),
        *(({name: sound}, whole(media={kind: sound})) for name, kind in names.items()),
    ]
    for given, wanted in cases:
        if hashed(given) != wanted:
            yield f"the key of {given} is {hashed(given)}"
    for part in ("model", "processor"):
        generator.__dict__.update({"model": None, "processor": None, part: _Depends(3)})
        if hashed({}) != whole(**{part: _Depends(3)}):
            yield f"what a {part} adds to keys is left out"
    del generator.__dict__["model"], generator.__dict__["processor"]
    if hashed({}) != 0:
        yield "a generator without a model has a key"
