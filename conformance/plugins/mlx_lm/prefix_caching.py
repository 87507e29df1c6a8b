"""The caches that mlx-lm's server keeps of what it has served, kept as the server keeps them.

Source: ``mlx_lm.server.ResponseGenerator._generate``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from conformance.core.options import PrefixCaching
from conformance.core.schedule import Request
from conformance.plugins.mlx_lm.compat import prompt_caches

# The server's names for the pieces of a chat's prompt; a prompt in one piece is the last.
_KINDS = ("system", "user", "assistant")
_MODEL = "model"


@dataclass
class Start:
    """Where a request goes on: a copy of a kept cache, its tokens, and the pieces that remain."""

    cache: Any
    tokens: list[int]
    segments: list[list[int]]
    kinds: list[str]


class KeptCaches:
    """Whole sequences, found by any prefix. They have no blocks and no snapshots at intervals.

    Of the options ``snapshots`` is ``--prompt-cache-size``, the number of sequences, and
    ``max_bytes`` is ``--prompt-cache-bytes``; the others say how a cache is cut, and this one is
    cut at any token if it is cut at all.
    """

    def __init__(self, caching: PrefixCaching) -> None:
        self._kept = prompt_caches()(caching.snapshots)
        self._max_bytes = caching.max_bytes
        # Of each live request, the kinds of the pieces that are still to be kept.
        self._kinds: dict[int, list[str]] = {}

    def fetch(self, request: Request, segments: Sequence[Sequence[int]]) -> Start:
        """The longest kept prefix of the prompt; what the pieces begin with is cut off."""
        prompt = list(request.prompt)
        cache, rest = self._kept.fetch_nearest_cache(_MODEL, prompt)
        count = len(prompt) - len(rest)
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
        """Note the new request; give up what has no room beside the caches at work."""
        self._kinds[uid] = start.kinds
        if self._max_bytes is not None:
            self._kept.trim_to(n_bytes=self._max_bytes - active_bytes)

    def keep_segments(self, generator: Any, responses: Sequence[Any]) -> None:
        """Keep the caches of prompts that have come to the end of a piece, but not their own."""
        ended = [
            r.uid
            for r in responses
            if r.end_of_segment and not r.end_of_prompt and self._kinds.get(r.uid)
        ]
        for uid, (cache, tokens) in generator.extract_cache(ended).items():
            kind = self._kinds[uid].pop(0)
            self._kept.insert_cache(_MODEL, tokens[:], cache, cache_type=kind)

    def keep_finished(self, responses: Sequence[Any]) -> None:
        """Keep the caches of requests that have ended, prompt and answer."""
        for response in responses:
            if response.finish_reason is None:
                continue
            self._kept.insert_cache(_MODEL, response.all_tokens[:], response.prompt_cache)
            self._kinds.pop(response.uid, None)

    def forget(self, uids: Sequence[int]) -> None:
        """Of a request that is removed nothing more is kept."""
        for uid in uids:
            self._kinds.pop(uid, None)
