"""Checks a prefix pool by its rules: what it finds, holds, evicts and counts after each call.

The rules are those of ``mlx_vlm.apc.APCManager``, implemented a second time. A prompt's whole
blocks take the places that were free the longest; a block in use keeps its place. Snapshots have
their own order, and are evicted before blocks if the bytes are bounded. Prefixes written to files
are found again, whatever was evicted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import chain, islice

from conformance.checks.play import Play
from conformance.core.engine_options import PrefixCaching
from conformance.core.pooled import PoolCall, Pooled, Prefix
from conformance.core.schedule import Request
from conformance.core.trace import Trace
from conformance.core.verdict import Finding, Verdict

# Shorter prompts get no snapshot.
SMALLEST = 16


@dataclass
class Rules:
    """The prefixes kept by the rules, and the counts."""

    caching: PrefixCaching
    free: list[Prefix | None] = field(default_factory=list)
    held: dict[Prefix, int] = field(default_factory=dict)
    snapshots: dict[Prefix, None] = field(default_factory=dict)
    sizes: dict[Prefix, int] = field(default_factory=dict)
    # In files: blocks, and snapshots.
    written: tuple[set[Prefix], set[Prefix]] = field(default_factory=lambda: (set(), set()))
    counts: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._restart()

    def _restart(self, _: Pooled | None = None) -> int:
        self.free = [None] * self.caching.blocks
        self.held, self.snapshots, self.sizes = {}, {}, {}
        names = ("lookups_hit", "lookups_miss", "matched_tokens", "stored_tokens", "stores")
        more = ("evictions", "memory_evictions", "exact_hits", "exact_stores", "disk_hits")
        self.counts = dict.fromkeys((*names, *more, "pool_used", "rejects"), 0)
        return 0

    def play(self, call: Pooled) -> int:
        """Apply a call; return how many tokens it finds."""
        does: dict[PoolCall, Callable[[Pooled], int]] = {
            PoolCall.FIND: self._find,
            PoolCall.KEEP: self._keep,
            PoolCall.RELEASE: self._release,
            PoolCall.FIND_SNAPSHOT: self._find_snapshot,
            PoolCall.KEEP_SNAPSHOT: self._keep_snapshot,
            PoolCall.FIND_ON_DISK: self._find_on_disk,
            PoolCall.RESTART: self._restart,
        }
        found: int = does[call.call](call)
        self.counts["pool_used"] = len(self._kept)
        self.sizes = {name: call.sizes.get(name, 0) for name in (*self._kept, *self.snapshots)}
        return found

    def counted(self, call: Pooled) -> dict[str, int]:
        """All counts; counts of files once everything is written."""
        found = self.counts | {"resident_bytes": sum(call.sizes.values())}
        found["exact_resident_bytes"] = sum(call.sizes[name] for name in call.snapshots)
        if call.on_disk and call.call in {PoolCall.FIND, PoolCall.FIND_SNAPSHOT}:
            blocks, snapshots = map(len, self.written)
            found |= {"disk_blocks_indexed": blocks, "disk_exact_indexed": snapshots}
            found["disk_bytes"] = call.file_bytes
            found |= dict.fromkeys(
                ("disk_pending_bytes", "disk_evictions", "disk_write_failures"), 0
            )
        return found

    def apart(self, call: Pooled) -> Iterator[tuple[str, list[Prefix | None], list[Prefix | None]]]:
        """A difference in what is kept: its name, by the rules, and by the call."""
        if tuple(self.free) != call.free:
            yield "the free places are others", self.free, list(call.free)
        if self.held != call.held:
            yield "other blocks are held", list(self.held), list(call.held)
        if tuple(self.snapshots) != call.snapshots:
            yield "other snapshots are kept", list(self.snapshots), list(call.snapshots)

    @property
    def _kept(self) -> list[Prefix]:
        return [*self.held, *(block for block in self.free if block is not None)]

    def _blocks(self, prefix: Prefix, least: int = 0) -> Iterator[Prefix]:
        size = self.caching.block_size
        for start in range(least // size * size, len(prefix.tokens) // size * size, size):
            yield Prefix(prefix.key, prefix.tokens[: start + size])

    def _hold(self, block: Prefix) -> None:
        if block not in self.held:
            self.free.remove(block)
        self.held[block] = self.held.get(block, 0) + 1

    def _hit(self, count: int, of: str = "") -> int:
        if count:
            self.counts["lookups_hit"] += 1
            self.counts["matched_tokens"] += count
            if of:
                self.counts[of] += 1
        return count

    def _find(self, call: Pooled) -> int:
        count = 0
        for block in self._blocks(call.prefix):
            if block not in self._kept:
                break
            self._hold(block)
            count = len(block.tokens)
        self.counts["lookups_miss"] += not count
        return self._hit(count)

    def _keep(self, call: Pooled) -> int:
        room = min(call.most, call.nbytes, self.caching.blocks * call.block_bytes)
        self._bound(call.most - room)
        left = call.most - sum(self.sizes.values())
        # Blocks in use may fill the pool: then nothing is kept in memory.
        rest = left // max(1, call.block_bytes) if left >= room else 0
        for block in self._blocks(call.prefix, call.least):
            if call.on_disk:
                self.written[0].add(block)
            if block in self._kept:
                self._hold(block)
            elif rest > 0 and self.free:
                self._evict(self.free.pop(0))
                self.held[block] = 1
                rest -= 1
                self.counts["stores"] += 1
                self.counts["stored_tokens"] += self.caching.block_size
        return 0

    def _release(self, call: Pooled) -> int:
        for block in call.released:
            if self.held.get(block, 0) > 1:
                self.held[block] -= 1
            elif self.held.pop(block, None):
                self.free.append(block)
        return 0

    def _find_snapshot(self, call: Pooled) -> int:
        most = len(call.prefix.tokens) - 1
        best, count = None, call.least
        for kept in self.snapshots:
            shared = self._shared(kept, call.prefix, most, cut=kept in call.cut)
            if shared > count:
                best, count = kept, shared
        if best is not None:
            self.snapshots[best] = self.snapshots.pop(best)
        on_disk = {self._shared(one, call.prefix, most, cut=False): one for one in self.written[1]}
        if (more := max(on_disk, default=0)) > count:
            self.counts["disk_hits"] += 1
            if call.most:
                self._remember(on_disk[more])
            return self._hit(more, "exact_hits")
        return self._hit(count if best is not None else 0, "exact_hits")

    def _shared(self, kept: Prefix, prompt: Prefix, most: int, *, cut: bool) -> int:
        """How many tokens of a prompt a snapshot serves: all of it or, if cut, whole blocks."""
        size, whole = self.caching.block_size, len(kept.tokens)
        ends = (whole, *range(min(most, whole) // size * size, 0, -size)) if cut else (whole,)
        same = (n for n in ends if n <= most and prompt.tokens[:n] == kept.tokens[:n])
        return next(same, 0) if kept.key == prompt.key else 0

    def _keep_snapshot(self, call: Pooled) -> int:
        if len(call.prefix.tokens) < SMALLEST or not (self.caching.snapshots or call.on_disk):
            return 0
        if call.on_disk:
            self.written[1].add(call.prefix)
        fits = self.caching.snapshots and call.nbytes <= call.most
        self._bound(call.most - (call.nbytes if fits else 0))
        self.counts["exact_stores"] += bool(fits or call.on_disk)
        if fits:
            self._remember(call.prefix)
        return 0

    def _remember(self, prefix: Prefix) -> None:
        self.snapshots.pop(prefix, None)
        self.snapshots[prefix] = None
        while len(self.snapshots) > self.caching.snapshots:
            self.snapshots.pop(next(iter(self.snapshots)))

    def _find_on_disk(self, call: Pooled) -> int:
        count = 0
        for block in self._blocks(call.prefix):
            if block not in self.written[0]:
                break
            count = len(block.tokens)
        if not call.on_disk or count <= call.least or (not call.least and self._first(call)):
            return 0
        self.counts["disk_hits"] += count // self.caching.block_size - 1
        return self._hit(count, "disk_hits")

    def _first(self, call: Pooled) -> bool:
        """Whether the prompt's first block is in memory, which takes precedence over files."""
        return next(self._blocks(call.prefix), None) in self._kept

    def _bound(self, most: int) -> None:
        """Evict snapshots, then unused blocks, until at most this many bytes are kept."""
        while sum(self.sizes.values()) > most:
            idle = next((block for block in self.free if block is not None), None)
            if self.snapshots:
                gone = next(iter(self.snapshots))
                self.snapshots.pop(gone)
                self.counts["evictions"] += 1
            elif idle is not None:
                gone = idle
                self.free.remove(idle)
                self.free.append(None)
                self._evict(idle)
            else:
                return
            self.sizes.pop(gone, None)
            self.counts["memory_evictions"] += 1

    def _evict(self, block: Prefix | None) -> None:
        self.counts["evictions"] += block is not None
        self.sizes.pop(block, None) if block is not None else None


def check_pooled(play: Play) -> list[Finding]:
    """``protocol`` for a prefix found or kept against the rules, ``leak`` for wrong counts.

    For each run the first of each kind.
    """
    caching = play.schedule.options.prefix_caching
    if caching is None:
        return []
    return [finding for trace in play.traces[:2] for finding in _of_run(play, trace, caching)]


def _of_run(play: Play, trace: Trace, caching: PrefixCaching) -> Iterator[Finding]:
    calls = [call for step in trace.steps for call in step.output.pooled]
    for verdict in (Verdict.PROTOCOL, Verdict.LEAK):
        found = chain(problems(calls, caching), _left_out(calls, trace, caching))
        wrong = (problem for problem in found if problem[0] is verdict)
        for _, what, expected, got in islice(wrong, 1):
            yield Finding(
                verdict,
                "pool_rules",
                what,
                schedule=play.schedule.name,
                mode=trace.mode,
                expected=expected,
                got=got,
                cause="the pool of kept prefixes does not keep its own rules",
            )


Problem = tuple[Verdict, str, str, str]


def problems(calls: list[Pooled], caching: PrefixCaching) -> Iterator[Problem]:
    """A deviation from the rules: the verdict, its subject, the expected and the actual value."""
    rules = Rules(caching)
    for number, call in enumerate(calls):
        found = rules.play(call)
        if call.found != found:
            what = f"of a prompt of {len(call.prefix.tokens)} tokens {call.call} gives another part"
            yield Verdict.PROTOCOL, what, f"{found} tokens", f"{call.found} tokens"
        for what, mine, theirs in rules.apart(call):
            yield (
                Verdict.PROTOCOL,
                f"after call {number}, {call.call}, {what}",
                _named(mine),
                _named(theirs),
            )
            return
        for name, count in rules.counted(call).items() if call.counted else ():
            if call.counted.get(name) != count:
                what = f"after call {number}, {call.call}, the count {name} is wrong"
                yield Verdict.LEAK, what, str(count), str(call.counted.get(name, "none"))


def _named(kept: list[Prefix | None]) -> str:
    return ", ".join(f"{len(one.tokens)}" if one else "-" for one in kept) or "none"


def _left_out(calls: list[Pooled], trace: Trace, caching: PrefixCaching) -> Iterator[Problem]:
    """Prefixes that finished prefills did not keep; blocks and snapshots side by side."""
    asked = {call.call for call in calls}
    blocks, snapshots = PoolCall.FIND in asked, PoolCall.KEEP_SNAPSHOT in asked
    if blocks and snapshots:
        yield Verdict.PROTOCOL, "blocks are looked for where snapshots are kept", "no call", "calls"
        return
    kind = PoolCall.KEEP if blocks else PoolCall.KEEP_SNAPSHOT
    taken = {call.prefix.tokens for call in calls if call.call is kind}
    ended = {e.request_id for step in trace.steps for e in step.output.events}
    reused = {name: n for step in trace.steps for name, n in step.output.reused.items()}
    for request in trace.schedule.requests if blocks or snapshots else ():
        count = len(request.prompt)
        wanted = {count} if blocks else _snapshots_of(request, caching)
        for least in sorted(n for n in wanted if n > reused.get(request.request_id, 0)):
            if request.request_id in ended and request.prompt[:least] not in taken:
                what = f"the prompt of {request.request_id}, {count} tokens, was not kept"
                yield Verdict.PROTOCOL, what, f"kept at {least} tokens", "not kept"


def _snapshots_of(request: Request, caching: PrefixCaching) -> set[int]:
    """The lengths at which snapshots are taken of a prompt, if it holds text alone."""
    last = len(request.prompt) - 1
    every = -(-caching.interval // caching.block_size) * caching.block_size
    wanted = {last, (last - 1) // every * every} if caching.snapshots != 1 else {last}
    return {count for count in wanted if count >= SMALLEST and not request.media}
