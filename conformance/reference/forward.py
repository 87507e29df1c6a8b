"""One forward pass over rows, each with its own caches and any number of new tokens."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import mlx.core as mx

from conformance.backend.cache_entries import leaves
from conformance.reference.caches import even
from conformance.reference.caches.wrap import history, must_be_even, shapes, signature, wrap

# The token of padded columns: any token would do, since nothing reads it.
_PADDING = 0


@dataclass(frozen=True)
class Feed:
    """The part of one row in a pass.

    Attributes:
        caches: the row's own caches, one for each layer; the pass appends ``tokens``.
        tokens: the row's next tokens, at least one.
        pads: it may share a pass with rows of another number of tokens.
    """

    caches: list[Any]
    tokens: tuple[int, ...]
    pads: bool = True


def forward(model: Any, feeds: Sequence[Feed]) -> list[mx.array]:
    """Feed all rows; logits ``[len(tokens), vocab]`` of each row's real tokens.

    Rows that can't share a pass (see ``caches.even``) are fed in several, one after another.
    """
    logits: dict[int, mx.array] = {}
    for group in _groups(feeds):
        together = [feeds[index] for index in group]
        logits.update(zip(group, _together(model, together), strict=True))
    return [logits[index] for index in range(len(feeds))]


def single_row(model: Any, feed: Feed) -> mx.array:
    """Feed one row with its own caches, as a single stream does; logits ``[tokens, vocab]``."""
    logits = model(mx.array(feed.tokens)[None], cache=feed.caches)  # [1, tokens, vocab]
    _evaluate(logits, [feed])
    row: mx.array = logits[0]
    return row


def _together(model: Any, feeds: Sequence[Feed]) -> list[mx.array]:
    lengths = [len(feed.tokens) for feed in feeds]
    columns = max(lengths)
    inputs = [feed.tokens + (_PADDING,) * (columns - len(feed.tokens)) for feed in feeds]
    layers = list(zip(*(feed.caches for feed in feeds), strict=True))
    if stacked := must_be_even(feeds[0].caches):
        batch = [even.stack(caches) for caches in layers]
    else:
        batch = [wrap(caches, lengths) for caches in layers]
    logits = model(mx.array(inputs), cache=batch)  # [rows, columns, vocab]
    for layer, caches in zip(batch, layers, strict=True):
        if stacked:
            even.split(layer, caches)
        else:
            layer.commit()
    _evaluate(logits, feeds)
    return [logits[row, :length] for row, length in enumerate(lengths)]


def _groups(feeds: Sequence[Feed]) -> list[list[int]]:
    """The groups of rows that can share a pass, in the order of their first rows."""
    groups: list[tuple[Hashable, list[int]]] = []
    for index, feed in enumerate(feeds):
        key: tuple[Hashable, ...] = signature(feed.caches)
        if must_be_even(feed.caches):
            key = (*key, history(feed.caches), len(feed.tokens))
        elif not feed.pads:
            key = (*key, len(feed.tokens))
        for other, group in groups:
            if other == key and all(_can_be_stacked(feed, feeds[member]) for member in group):
                group.append(index)
                break
        else:
            groups.append((key, [index]))
    return [group for _, group in groups]


def _can_be_stacked(one: Feed, other: Feed) -> bool:
    """Whether the recurrent states of two rows can be stacked: some models' grow at first."""
    pairs = zip(shapes(one.caches), shapes(other.caches), strict=True)
    return all(mine == its for mine, its in pairs if mine is not None and its is not None)


def _evaluate(logits: mx.array, feeds: Sequence[Feed]) -> None:
    """Evaluate now, including caches, or the graphs of unread caches grow with every step."""
    states = [leaf.state for feed in feeds for leaf in leaves(feed.caches) if not leaf.empty()]
    mx.eval(logits, states)
