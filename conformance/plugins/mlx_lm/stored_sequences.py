"""The contents and counts of the server's store of sequences."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from mlx_lm.models.cache import can_trim_prompt_cache

from conformance.backend.cache_entries import arrays
from conformance.core.stored import KeptSequence

Counts = Mapping[str, tuple[int, int]]


def stored_sequences(store: Any) -> tuple[tuple[KeptSequence, ...], Counts] | None:
    """All kept sequences, the oldest of each kind first, and the store's own counts by kind.

    ``None`` for releases whose store does not count by kind: up to 0.31.1.
    """
    if not hasattr(store, "stats_by_type"):
        return None
    kept = []
    for kind, sequences in store._lru._lrus.items():
        for model, tokens in sequences:
            entry = store._trie.get(model, tokens)
            nbytes = int(entry.nbytes)
            kept.append(KeptSequence(kind, tuple(tokens), nbytes, held_bytes(entry.prompt_cache)))
    stats = store.stats_by_type()
    counted = {kind: (int(of["n_sequences"]), int(of["n_bytes"])) for kind, of in stats.items()}
    return tuple(kept), counted


def shares_with_kept(store: Any, found: Sequence[Any]) -> bool:
    """Whether one of these caches is also in the store: decoding with it would change the store."""
    if stored_sequences(store) is None:
        return False
    kept = {
        id(cache)
        for sequences in store._lru._lrus.values()
        for model, tokens in sequences
        for cache in store._trie.get(model, tokens).prompt_cache
    }
    return any(id(cache) in kept for cache in found)


def shortest_stored(store: Any) -> list[Any] | None:
    """The caches of the stored sequence with the fewest tokens; ``None`` if nothing is stored.

    The store has a tree with a branch for each token; its names differ up to 0.31.1.
    """
    tree = store._trie._trie if hasattr(store, "_trie") else store._cache
    nodes = list(tree.values())  # one for each model
    while nodes:
        for node in nodes:
            if (entry := node.get("__value__") or node.get("cache")) is not None:
                caches: list[Any] = entry.prompt_cache
                return caches
        nodes = [branch for node in nodes for branch in node.values()]
    return None


def held_bytes(cache: Sequence[Any]) -> int:
    """Bytes of all arrays of a sequence's caches, except arrays with one axis."""
    return sum(int(array.nbytes) for array in arrays(list(cache)) if array.ndim > 1)


def can_be_cut(cache: Sequence[Any]) -> bool:
    """Whether all of a sequence's caches can be cut at any token."""
    return bool(can_trim_prompt_cache(list(cache)))
