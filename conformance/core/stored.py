"""The record of a sequence store: its calls, and its content after each."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field


class StoreCall(enum.StrEnum):
    """The kind of a call."""

    FETCH = "fetch"  # the longest stored prefix of a prompt
    INSERT = "insert"  # store a sequence
    BOUND = "bound"  # evict sequences until at most this many bytes are stored


@dataclass(frozen=True)
class KeptSequence:
    """A stored sequence: its kind, its tokens, the bytes counted for it and its actual bytes."""

    kind: str
    tokens: tuple[int, ...]
    counted: int
    held: int


@dataclass(frozen=True)
class Stored:
    """One call of the store.

    Attributes:
        call: the kind of the call.
        tokens: tokens of the prompt or of the sequence.
        kind: kind of the sequence.
        cut: whether its caches can be cut at any token.
        most: the limit on stored sequences or, for ``BOUND``, on bytes.
        found: how many tokens of the prompt were found.
        shared: whether the result shares a cache with a stored sequence instead of being a copy.
        kept: the sequences stored afterwards, of each kind the oldest first.
        counted: the store's own count of sequences and bytes afterwards, by kind.
        total: the store's own count of all bytes; ``None`` if it has none.
    """

    call: StoreCall
    tokens: tuple[int, ...] = ()
    kind: str = ""
    cut: bool = False
    most: int = 0
    found: int = 0
    shared: bool = False
    kept: tuple[KeptSequence, ...] = ()
    counted: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    total: int | None = None
