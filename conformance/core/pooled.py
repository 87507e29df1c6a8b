"""The records of a prefix pool (blocks or snapshots) and of a sequence store, call by call."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field


class PoolCall(enum.StrEnum):
    """The kind of a call."""

    FIND = "find"  # the stored blocks that a prompt begins with, which are then in use
    KEEP = "keep"  # store a prompt's whole blocks, which are then in use
    RELEASE = "release"  # end the use of blocks
    FIND_SNAPSHOT = "find_snapshot"  # the longest snapshot that a prompt begins with
    KEEP_SNAPSHOT = "keep_snapshot"  # store all caches of a prompt
    RESTART = "restart"  # the server restarts: only files remain
    FIND_ON_DISK = "find_on_disk"  # the blocks in files that a prompt begins with


@dataclass(frozen=True)
class Prefix:
    """A stored prefix: the first tokens of prompts with the same key, up to the end of a block.

    ``key`` stands for all content of a prompt other than its tokens.
    """

    key: int
    tokens: tuple[int, ...]


@dataclass(frozen=True)
class Pooled:
    """One call of the pool, and its state afterwards.

    Attributes:
        call: the kind of the call.
        prefix: the prompt's tokens and its key; none for ``RELEASE``.
        least: how many of its tokens were found or stored already.
        found: how many of its tokens were found.
        nbytes: bytes of the arrays to store.
        block_bytes: the part of these for each whole block.
        most: the limit on stored bytes.
        cut: the snapshots that can be cut at the end of any block.
        on_disk: whether prefixes are written to files, too.
        released: the blocks whose use count is reduced by one, in that order.
        free: the pool's places for unused blocks, the next to be reused first; an empty place is
            ``None``.
        held: the blocks in use, and how often.
        snapshots: the snapshots, the next to be evicted first.
        file_bytes: bytes of all files.
        sizes: bytes of the arrays of everything stored.
        counted: the pool's own counts, by name.
    """

    call: PoolCall
    prefix: Prefix = Prefix(0, ())
    least: int = 0
    found: int = 0
    nbytes: int = 0
    block_bytes: int = 0
    most: int = 0
    cut: frozenset[Prefix] = frozenset()
    on_disk: bool = False
    released: tuple[Prefix, ...] = ()
    free: tuple[Prefix | None, ...] = ()
    held: Mapping[Prefix, int] = field(default_factory=dict)
    snapshots: tuple[Prefix, ...] = ()
    file_bytes: int = 0
    sizes: Mapping[Prefix, int] = field(default_factory=dict)
    counted: Mapping[str, int] = field(default_factory=dict)


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
