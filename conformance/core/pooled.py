"""The record of a pool of kept prefixes, blocks or snapshots: its calls, and what it holds."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field


class PoolCall(enum.StrEnum):
    """What was asked of the pool."""

    FIND = "find"  # the kept blocks that a prompt begins with, which are then held
    KEEP = "keep"  # keep a prompt's whole blocks, which are then held
    RELEASE = "release"  # hold blocks no more
    FIND_SNAPSHOT = "find_snapshot"  # the longest snapshot that a prompt begins with
    KEEP_SNAPSHOT = "keep_snapshot"  # keep all caches of a prompt
    RESTART = "restart"  # the server is started anew: what is in files is all that is kept
    FIND_ON_DISK = "find_on_disk"  # the blocks in files that a prompt begins with


@dataclass(frozen=True)
class Prefix:
    """What is kept: the first tokens of prompts with the same key, up to the end of a block.

    ``key`` stands for all content of a prompt other than its tokens.
    """

    key: int
    tokens: tuple[int, ...]


@dataclass(frozen=True)
class Pooled:
    """One call of the pool, and its state afterwards.

    Attributes:
        call: which.
        prefix: the prompt's tokens and its key; none of ``RELEASE``.
        least: how many of its tokens are found or kept already.
        found: how many of its tokens were found.
        nbytes: of the arrays that were to be kept.
        block_bytes: of these, for each whole block.
        most: the bytes that may be kept.
        cut: the snapshots that can be cut at the end of any block.
        on_disk: whether what is kept is written to files, too.
        released: the blocks that are held once less, in that order.
        free: the places of the pool for blocks that nobody holds, the next to be used first; an
            empty one is ``None``.
        held: the blocks that are held, and how often.
        snapshots: the snapshots, the next to be given up first.
        file_bytes: of all files.
        sizes: bytes of the arrays of all that is kept.
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
