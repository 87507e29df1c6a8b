"""The record of a store of kept sequences: its calls, and what it holds after each."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field


class StoreCall(enum.StrEnum):
    """What was asked of the store."""

    FETCH = "fetch"  # the longest kept prefix of a prompt
    INSERT = "insert"  # keep a sequence
    BOUND = "bound"  # give up sequences until at most so many bytes are kept


@dataclass(frozen=True)
class KeptSequence:
    """A sequence that is kept: its kind, its tokens, the bytes counted for it and those it has."""

    kind: str
    tokens: tuple[int, ...]
    counted: int
    held: int


@dataclass(frozen=True)
class Stored:
    """One call of the store.

    Attributes:
        call: which.
        tokens: of the prompt or of the sequence.
        kind: of the sequence.
        cut: whether its caches can be cut at any token.
        most: the number of sequences that are kept at most or, of ``BOUND``, the number of bytes.
        found: how many tokens of the prompt were found.
        shared: whether what was found has a cache that a kept sequence has, and is no copy.
        kept: what is kept afterwards, of each kind the oldest first.
        counted: the store's own count of sequences and bytes afterwards, by kind.
        total: its own count of all bytes; ``None`` if it has none.
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
