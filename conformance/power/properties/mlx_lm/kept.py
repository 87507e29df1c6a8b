"""mlx-lm's kept prompts: the store of their caches, and the tree that finds them."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from types import SimpleNamespace
from typing import Any

import mlx.core as mx
import numpy as np
from mlx_lm.models import cache

from conformance.core.properties import Property

_FILE = "mlx_lm/models/cache.py"
_MODELS = ("one", "another")
Tokens = tuple[int, ...]


def kept_properties() -> list[Property]:
    """The properties of the store and of its tree."""
    stores = ("LRUPromptCache.*", "PromptTrie.*")
    return [
        Property("kept: a prefix of one token", _FILE, stores, partial(_kept, (1,))),
        Property("kept: ten by default", _FILE, stores, _ten),
        Property("kept: to the last byte", _FILE, stores, _bytes),
        Property("kept: what the tree finds", _FILE, ("PromptTrie.*",), _tree),
    ]


def _kept(*cases: tuple[int, ...]) -> Iterator[str]:
    """A prompt takes the longest kept prefix that cannot be cut, and computes the rest."""
    tokens = [5, 6, 7, 8]
    for counts in cases:
        store = cache.LRUPromptCache()
        for count in counts:
            store.insert_cache("model", tokens[:count], [cache.ArraysCache(count)])
        found, rest = store.fetch_nearest_cache("model", tokens)
        got = len(found[0].cache) if found else 0
        if (got, rest) != (counts[-1], tokens[counts[-1] :]):
            yield f"of {counts} tokens kept those of {got} are found, {rest} are left"


def _ten() -> Iterator[str]:
    """Without a bound of its own a store keeps ten sequences, of any number of bytes."""
    store = cache.LRUPromptCache()
    for number in range(12):
        entry: Any = cache.ArraysCache(1)
        entry[0] = mx.zeros((1, 2))
        store.insert_cache("model", [number, 0], [entry])
        if len(store) != min(number + 1, 10):
            yield f"of {number + 1} sequences {len(store)} are kept"


def _bytes() -> Iterator[str]:
    """The store keeps as many one-byte sequences as its bound has bytes, down to none."""
    for most in (3, 2, 1, 0, -1):
        store: Any = cache.LRUPromptCache()
        for number in range(3):
            one = SimpleNamespace(nbytes=1, is_trimmable=lambda: False)
            store.insert_cache("model", [number], [one])
        store.trim_to(n_bytes=most)
        if (len(store), store.nbytes) != (max(0, most), max(0, most)):
            yield f"of 3 sequences of a byte {len(store)} are kept in {most} bytes"


def _tree() -> Iterator[str]:
    """Sequences come and go; each prompt finds the right one, and the tree has no others."""
    draw = np.random.default_rng(5)
    held: dict[tuple[str, Tokens], int] = {}
    tree: Any = cache.PromptTrie()
    for number in range(150):
        model = _MODELS[number % 5 == 0]
        tokens = tuple(draw.integers(0, 3, int(draw.integers(0, 6))).tolist())
        key = (model, tokens)
        if number % 3 and key in held:
            if (got := tree.pop(model, list(tokens))) != (right := held.pop(key)):
                yield f"{key} held {right}, {got} is taken out"
        elif number % 7 == 6:
            tree.add(model, list(tokens), number)
            held[key] = number
            prefixes = [k for k in held if k[0] == model and k[1] == tokens[: len(k[1])]]
            cut = [(len(k[1]), held.pop(k)) for k in sorted(prefixes) if k != key]
            if (got := tree.pop_prefixes(model, list(tokens))) != cut:
                yield f"prefixes of {key} held {cut}, {got} are taken out"
        else:
            before = held.get(key)
            held[key] = number
            if (got := tree.add(model, list(tokens), number)) != before:
                yield f"{key} held {before}, {got} is replaced"
            if tree.get(model, list(tokens)) != number:
                yield f"{key} is added, and not there"
        if problem := _not_found(tree, held, model, draw):
            yield problem
    if {model: _of(held, model) for model in _MODELS} != tree._trie:
        yield "the tree has branches without a sequence"


def _not_found(
    tree: Any, held: dict[tuple[str, Tokens], int], model: str, draw: np.random.Generator
) -> str:
    prompt = tuple(draw.integers(0, 3, int(draw.integers(0, 6))).tolist())
    own = [tokens for of, tokens in held if of == model]
    got = tree.search(model, list(prompt))
    said = f"of {sorted(own)} {prompt} finds {got}"
    if prompt in own:
        return said if got.exact != list(prompt) else ""
    common = max((n for n in range(len(prompt) + 1) for t in own if t[:n] == prompt[:n]), default=0)
    beyond = [t for t in own if common and t[:common] == prompt[:common]]
    least = min(map(len, beyond), default=0)
    # Prompts of one token or none are not looked up; another property covers this.
    shorter = max((t for t in own if len(t) > 1 and t == prompt[: len(t)]), key=len, default=None)
    right = got.exact is None and got.common_prefix == common
    right &= (tuple(got.longer) in beyond) if got.longer is not None else not beyond
    right &= got.longer is None or len(got.longer) == least
    right &= got.shorter == (None if shorter is None else list(shorter))
    return "" if right else said


def _of(held: dict[tuple[str, Tokens], int], model: str) -> dict[Any, Any]:
    root: dict[Any, Any] = {}
    for (of, tokens), value in held.items():
        node = root
        for token in tokens if of == model else ():
            node = node.setdefault(token, {})
        if of == model:
            node["__value__"] = value
    return root
