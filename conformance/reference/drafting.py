"""Drafts: a model guesses tokens for each row, and one pass verifies them all.

Lossless, for greedy and other rows: the token after each accepted one is chosen by the row's own
sampler and processors from the model's logits, exactly once, and a draft token is accepted if it is
the same. A rejected draft changes nothing: drafts are fed to copies of the caches, and processors
and samplers are called for accepted tokens only.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence as Many
from typing import Any

import mlx.core as mx
import numpy as np
from mlx_lm.models import cache as library

from conformance.backend.cache_entries import leaves
from conformance.backend.module_hooks import aside
from conformance.core.engine_options import Drafting
from conformance.core.errors import Unsupported
from conformance.core.trace import FinishReason
from conformance.reference.caches.even import kinds
from conformance.reference.forward import Feed, forward
from conformance.reference.sequence import Sequence

KIND = "draft_model"
# Tokens that are verified at once if the options do not set it.
_BLOCK = 4

Chosen = tuple[int, mx.array, FinishReason | None]


class Drafts:
    """Greedy drafts by ``model``, with its own caches for each row.

    Args:
        model: the draft model; may be the verified model itself.
        drafting: ``None`` turns drafts off.

    Attributes:
        proposed: the model's own drafts of the last round, by request.
    """

    def __init__(self, model: Any, drafting: Drafting | None) -> None:
        if drafting is not None and drafting.kind != KIND:
            raise Unsupported(f"no drafter of kind {drafting.kind!r} is supported; {KIND} is")
        self._model = model
        self._drafting = drafting
        self._round = 0
        self.proposed: dict[str, tuple[int, ...]] = {}

    def propose(self, rows: Many[Sequence]) -> list[tuple[int, ...]]:
        """A draft for each row, at most one token shorter than what the row may still produce."""
        self.proposed = {}
        if self._drafting is None or not rows:
            return [() for _ in rows]
        block = self._drafting.block_size or _BLOCK
        counts = [
            max(0, min(block - 1, row.request.max_tokens - len(row.produced) - 1)) for row in rows
        ]
        with aside():
            drafts = self._draft(rows, counts)
        made = zip(rows, drafts, strict=True)
        self.proposed = {row.name: tuple(draft) for row, draft in made if draft}
        for place, row in enumerate(rows):
            self._edit(row, drafts[place], place)
        self._round += 1
        return [tuple(draft) for draft in drafts]

    def _draft(self, rows: Many[Sequence], counts: Many[int]) -> list[list[int]]:
        """The first token from the accepted tokens, the others from copies of the caches."""
        drafts: list[list[int]] = [[] for _ in rows]
        feeds: dict[int, Feed] = {}
        for place, row in enumerate(rows):
            if counts[place]:
                row.draft_caches = row.draft_caches or library.make_prompt_cache(self._model)
                new = tuple(row.tokens[row.draft_fed :])
                feeds[place] = Feed(row.draft_caches, new, row.pads)
                row.draft_fed += len(new)
        while feeds:
            logits = forward(self._model, list(feeds.values()))
            following: dict[int, Feed] = {}
            for (place, feed), mine in zip(feeds.items(), logits, strict=True):
                token = _greedy(mine[-1])
                drafts[place].append(token)
                if len(drafts[place]) < counts[place]:
                    first = len(drafts[place]) == 1
                    caches = copy.deepcopy(feed.caches) if first else feed.caches
                    following[place] = Feed(caches, (token,), feed.pads)
            feeds = following
        return drafts

    def _edit(self, row: Sequence, draft: list[int], place: int) -> None:
        """Make as many tokens right as the schedule says, and the next one wrong."""
        right = self._drafting.right if self._drafting else ()
        if not right or row.hints is None:
            return
        wanted = right[(self._round + place) % len(right)]
        start = len(row.produced)
        expected = row.hints.right[start:][: len(draft)]
        for index, token in enumerate(expected):
            draft[index] = token if index != wanted else row.hints.wrong[start + index]


def verify(
    model: Any, rows: Many[Sequence], drafts: Many[tuple[int, ...]], others: Many[Feed]
) -> tuple[list[list[Chosen]], list[mx.array]]:
    """One pass over each row's last token and its draft, and over ``others``.

    Returns: for each row its new tokens; for each of ``others`` its logits ``[tokens, vocab]``.
    """
    feeds = [_trial(row, draft) for row, draft in zip(rows, drafts, strict=True)]
    if not feeds and not others:
        return [], []
    logits = forward(model, [*feeds, *others])
    results: list[list[Chosen]] = []
    again: list[Feed] = []
    for row, draft, feed, mine in zip(rows, drafts, feeds, logits, strict=False):
        results.append(_accepted(row, draft, mine))
        again += _settle(row, feed, len(results[-1]))
    if again:
        forward(model, again)
    return results, logits[len(rows) :]


def _trial(row: Sequence, draft: tuple[int, ...]) -> Feed:
    """The row's own caches if nothing can be rejected, else copies of them."""
    caches = row.copy_caches() if draft else row.caches
    return Feed(caches, (*row.todo, *draft), row.pads)


def _accepted(row: Sequence, draft: tuple[int, ...], logits: mx.array) -> list[Chosen]:
    """Tokens up to the first that differs from the draft or ends the request."""
    known, chosen = row.tokens, []
    for index in range(len(draft) + 1):
        token, logprobs = row.choose(logits[index], known)
        reason = row.accept(token)
        chosen.append((token, logprobs, reason))
        if reason is not None or index == len(draft) or token != draft[index]:
            break
        known = [*known, token]
    return chosen


def _settle(row: Sequence, feed: Feed, count: int) -> list[Feed]:
    """Keep ``count`` of the trial's tokens; the last produced token is fed in the next pass.

    Returns: tokens to feed again, if the copy can't be cut after rejected tokens.
    """
    kept = feed.tokens[:count]
    rejected = len(feed.tokens) - count
    repeat: list[Feed] = []
    if not rejected:
        row.caches = feed.caches
    elif all(type(leaf) in _CUTTABLE for leaf in leaves(feed.caches)):
        for leaf in leaves(feed.caches):
            leaf.trim(rejected)
        row.caches = feed.caches
    else:
        repeat = [Feed(row.caches, kept, row.pads)]
    row.history += kept
    row.todo = row.produced[-1:]
    return repeat


def _greedy(logits: mx.array) -> int:
    """The most likely token by logits ``[vocab]``."""
    return int(np.argmax(np.array(logits.astype(mx.float32))))


# Caches that keep all tokens; a window or a recurrent state can't be undone.
_CUTTABLE = kinds("KVCache", "ConcatenateKVCache", "QuantizedKVCache")
