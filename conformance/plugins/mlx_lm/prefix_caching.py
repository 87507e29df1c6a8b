"""Prefix caching of mlx-lm's server: the caches of earlier requests, stored as the server does.

Source: ``mlx_lm.server.ResponseGenerator._generate``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from mlx_lm.models.cache import can_trim_prompt_cache

from conformance.backend.cache_entries import arrays
from conformance.core.engine_options import PrefixCaching
from conformance.core.errors import Unsupported
from conformance.core.pooled import KeptSequence, StoreCall, Stored
from conformance.core.schedule import Request
from conformance.plugins.mlx_lm import compat

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


# The server's names for the segments of a chat's prompt; a single segment has the last name.
_KINDS = ("system", "user", "assistant")
_MODEL = "model"


@dataclass
class Start:
    """The start of a request: a copy of a stored cache, its tokens, and the remaining segments."""

    cache: Any
    tokens: list[int]
    segments: list[list[int]]
    kinds: list[str]


class PrefixCache:
    """Stores whole sequences, found by any prefix, without blocks or snapshots at intervals.

    The option ``snapshots`` is ``--prompt-cache-size``, the number of sequences, and ``max_bytes``
    is ``--prompt-cache-bytes``. The other options say where a cache can be cut; these caches can be
    cut at any token or not at all.
    """

    def __init__(self, caching: PrefixCaching) -> None:
        self._stored = compat.prompt_caches()(caching.snapshots)
        self._most = caching.snapshots
        self._max_bytes = caching.max_bytes
        self._times_first = caching.times_first
        self._first_bytes: int | None = None
        self._calls: list[Stored] = []
        # For each live request, the kinds of the segments not stored yet.
        self._kinds: dict[int, list[str]] = {}

    def fetch(self, request: Request, segments: Sequence[Sequence[int]]) -> Start:
        """The longest stored prefix of the prompt, and the segments after it."""
        prompt = list(request.prompt)
        cache, rest = self._stored.fetch_nearest_cache(_MODEL, prompt)
        count = len(prompt) - len(rest)
        shared = shares_with_kept(self._stored, cache or ())
        self._note(StoreCall.FETCH, prompt, found=count, shared=shared)
        pieces = [list(segment) for segment in segments]
        kinds = list(_KINDS[: len(pieces)] if len(pieces) > 1 else _KINDS[-1:])
        left = count
        while left > 0 and left >= len(pieces[0]):
            left -= len(pieces.pop(0))
            kinds.pop(0)
        if left:
            pieces[0] = pieces[0][left:]
        return Start(cache, prompt[:count], pieces, kinds)

    def inserted(self, uid: int, start: Start, active_bytes: int) -> None:
        """Register the new request; evict sequences that do not fit next to the caches in use.

        Raises:
            Unsupported: there is a bound, which the store takes only from 0.31 on.
        """
        self._kinds[uid] = start.kinds
        bound = self._bound(active_bytes)
        if bound is not None:
            if not hasattr(self._stored, "trim_to"):
                raise Unsupported("this mlx-lm's LRUPromptCache does not support a bound of bytes")
            self._meet_exactly()
            self._stored.trim_to(n_bytes=bound)
            self._note(StoreCall.BOUND, most=max(0, bound))

    def store_segments(self, generator: Any, responses: Sequence[Any]) -> None:
        """Store the caches of prompts at the end of each segment except the last."""
        ended = [
            r.uid
            for r in responses
            if r.end_of_segment and not r.end_of_prompt and self._kinds.get(r.uid)
        ]
        for uid, (cache, tokens) in generator.extract_cache(ended).items():
            kind = self._kinds[uid].pop(0)
            self._stored.insert_cache(_MODEL, tokens[:], cache, cache_type=kind)
            self._note_insert(tokens, cache, kind)

    def store_checkpoints(self, generator: Any) -> None:
        """Store the caches of prompts before their last token, in releases that keep them."""
        for tokens, cache in compat.checkpoints(generator):
            self._stored.insert_cache(_MODEL, tokens, cache, checkpoint=True)
            self._note_insert(tokens, cache, _KINDS[-1])

    def store_finished(self, responses: Sequence[Any]) -> None:
        """Store the caches of finished requests: prompt and output."""
        for response in responses:
            if response.finish_reason is None:
                continue
            tokens, cache = response.all_tokens, response.prompt_cache
            self._stored.insert_cache(_MODEL, tokens[:], cache)
            self._note_insert(tokens, cache, _KINDS[-1])
            self._kinds.pop(response.uid, None)

    def shortest(self) -> list[Any] | None:
        """The uncopied caches of the shortest stored sequence, one for each layer."""
        return shortest_stored(self._stored)

    def calls(self) -> tuple[Stored, ...]:
        """The store's calls since the previous call of this method."""
        made, self._calls = tuple(self._calls), []
        return made

    def _bound(self, active_bytes: int) -> int | None:
        if self._times_first is not None and self._first_bytes is not None:
            return int(self._times_first * self._first_bytes)
        return None if self._max_bytes is None else self._max_bytes - active_bytes

    def _meet_exactly(self) -> None:
        """Set bounds equal to the current contents: nothing may be evicted for them."""
        if stored_sequences(self._stored) is not None:
            met = int(self._stored.nbytes)
            self._stored.trim_to(n_sequences=len(self._stored))
            self._stored.trim_to(n_bytes=met)
            self._note(StoreCall.BOUND, most=met)

    def _note_insert(self, tokens: Sequence[int], cache: Any, kind: str) -> None:
        self._first_bytes = self._first_bytes or held_bytes(cache)
        self._note(StoreCall.INSERT, tokens, kind=kind, cut=can_be_cut(cache), most=self._most)

    def _note(self, call: StoreCall, tokens: Sequence[int] = (), **more: Any) -> None:
        if (seen := stored_sequences(self._stored)) is not None:
            kept, counted = seen
            record = Stored(call, tuple(tokens), kept=kept, counted=counted, **more)
            self._calls.append(replace(record, total=int(self._stored.nbytes)))

    def forget(self, uids: Sequence[int]) -> None:
        """Store nothing more for removed requests."""
        for uid in uids:
            self._kinds.pop(uid, None)
