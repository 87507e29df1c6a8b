"""Records a generator's calls of its prefix store, with the store's contents at each call."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

from conformance.backend.cache_entries import arrays
from conformance.core.pooled import PoolCall, Pooled, Prefix
from conformance.plugins.mlx_vlm import compat
from conformance.plugins.mlx_vlm.prefix_caching import max_bytes

_EMPTY = Prefix(0, ())
# Before these calls, all pending files are written.
_FINDS = (PoolCall.FIND, PoolCall.FIND_SNAPSHOT)


class PoolRecording:
    """Wraps the methods of one ``APCManager``; bounds its bytes if the options say so.

    Args:
        manager: the store, not used yet.
        times_first: the bound, as a multiple of the bytes of the first entry.
    """

    def __init__(self, manager: Any, times_first: float | None) -> None:
        self._manager = manager
        self._times_first = times_first
        self._calls: list[Pooled] = []
        self._names: dict[int, Prefix] = {}
        recorded: dict[str, Callable[..., Any]] = {
            "lookup_prefix": self._find,
            "store_kv_blocks": self._keep,
            "release": self._release,
            "lookup_exact_cache": partial(self._search, PoolCall.FIND_SNAPSHOT),
            "lookup_prefix_disk_cache": partial(self._search, PoolCall.FIND_ON_DISK),
            "store_exact_cache": self._keep_snapshot,
        }
        for name, record in recorded.items():
            setattr(manager, name, partial(record, getattr(manager, name)))

    def calls(self) -> tuple[Pooled, ...]:
        """The store's calls since the previous call of this method."""
        made, self._calls = tuple(self._calls), []
        return made

    def restarted(self, manager: Any) -> PoolRecording:
        """The recording of a new manager that continues these calls."""
        new = PoolRecording(manager, self._times_first)
        new._calls = self._calls
        new._note(PoolCall.RESTART, (), 0)
        return new

    def _find(self, right: Any, tokens: Sequence[int], extra_hash: int = 0) -> Any:
        found = right(tokens, extra_hash=extra_hash)
        self._note(PoolCall.FIND, tokens, extra_hash, found=found[1])
        return found

    def _keep(
        self, right: Any, tokens: Sequence[int], keys: Any, values: Any, **options: Any
    ) -> Any:
        salt = options.get("extra_hash", 0)
        self._name(tokens, salt)
        most = self._most()
        nbytes = _held_bytes([keys, values])
        try:
            return right(tokens, keys, values, **options)
        finally:  # the library hides errors, after which nothing was kept
            self._note(
                PoolCall.KEEP,
                tokens,
                salt,
                least=options.get("skip_first_n_tokens", 0),
                nbytes=nbytes,
                block_bytes=nbytes // keys[0].shape[2] * self._manager.block_size,
                most=most,
            )
            self._bound()

    def _release(self, right: Any, blocks: Iterable[Any]) -> None:
        given = list(blocks)
        # A block that was evicted while it was held no longer has a name.
        names = tuple(self._names.get(block.block_hash, _EMPTY) for block in given)
        right(given)
        if given:
            self._note(PoolCall.RELEASE, (), 0, released=names)

    def _search(
        self, call: PoolCall, right: Any, tokens: Sequence[int], extra_hash: int = 0, **options: Any
    ) -> Any:
        most, least = self._most(), options.get("min_prefix_tokens", 0)
        found = right(tokens, extra_hash=extra_hash, **options)
        self._note(call, tokens, extra_hash, least=least, found=found[1], most=most)
        return found

    def _keep_snapshot(
        self, right: Any, tokens: Sequence[int], caches: Any, *, extra_hash: int = 0
    ) -> Any:
        most, nbytes = self._most(), sum(map(_own_bytes, caches))
        try:
            return right(tokens, caches, extra_hash=extra_hash)
        finally:
            self._note(PoolCall.KEEP_SNAPSHOT, tokens, extra_hash, nbytes=nbytes, most=most)
            self._bound()

    def _most(self) -> int:
        """The bound in bytes; without a bound, more than the store can have."""
        most = max_bytes(self._manager)
        return sys.maxsize if most is None else most

    def _bound(self) -> None:
        """Set the bound in bytes when something is kept for the first time."""
        if self._times_first and (resident := sum(self._calls[-1].sizes.values())):
            self._manager.memory_max_bytes = int(self._times_first * resident)
            self._times_first = None

    def _name(self, tokens: Sequence[int], salt: int) -> None:
        """Remember the blocks of the prompt."""
        apc, size = compat.part("apc"), self._manager.block_size
        before = apc.SEED_PARENT_HASH
        for start in range(0, len(tokens) // size * size, size):
            before = apc._hash_tokens(before, tuple(tokens[start : start + size]), salt)
            self._names[before] = Prefix(salt, tuple(tokens[: start + size]))

    def _note(self, call: PoolCall, tokens: Sequence[int], salt: int, **more: Any) -> None:
        manager = self._manager
        free: list[Any] = []
        block = manager._free_head
        while block is not None and len(free) <= manager.num_blocks:
            free.append(block)
            block = block.next
        unheld = set(map(id, free))
        kept = [block for block in manager.pool if block.block_hash is not None]
        held = [block for block in kept if id(block) not in unheld]
        entries = {
            Prefix(e.extra_hash, e.token_ids): e.prompt_cache for e in manager._exact_cache.values()
        }
        sizes = {self._names[b.block_hash]: _held_bytes([b.keys, b.values]) for b in kept}
        sizes |= {name: sum(map(_own_bytes, caches)) for name, caches in entries.items()}
        counted = {n: v for n, v in manager.stats_snapshot().items() if isinstance(v, int)}
        self._calls.append(
            Pooled(
                call,
                Prefix(salt, tuple(map(int, tokens))),
                cut=frozenset(name for name, caches in entries.items() if _can_be_cut(caches)),
                on_disk=manager.disk is not None,
                file_bytes=_file_bytes(manager.disk) if call in _FINDS else 0,
                free=tuple(self._names.get(b.block_hash) for b in free),
                held={self._names[b.block_hash]: b.ref_cnt for b in held},
                snapshots=tuple(entries),
                sizes=sizes,
                counted=counted,
                **more,
            )
        )


def _own_bytes(cache: Any) -> int:
    """Bytes of a cache by its own count or else of its state, which may be smaller than buffers."""
    return int(cache.nbytes) if _has_count(cache) else _held_bytes(cache.state)


def _has_count(cache: Any) -> bool:
    try:
        return isinstance(cache.nbytes, int)
    except (AttributeError, NotImplementedError):
        return False


def _held_bytes(value: Any) -> int:
    return sum(int(array.nbytes) for array in arrays(value))


def _file_bytes(disk: Any) -> int:
    files = disk.dir.iterdir() if disk is not None else ()
    return sum(int(file.stat().st_size) for file in files if file.suffix == disk.SUFFIX)


def _can_be_cut(snapshot: Sequence[Any]) -> bool:
    """Whether all caches of the snapshot are plain keys and values."""
    return all(type(cache).__name__ == "KVCache" for cache in snapshot)
