"""Keeps blocks in a pool that does as the rules say, on the toy model; some fake what is seen."""

import dataclasses

import msgspec

from conformance.checks.pool_rules import Rules
from conformance.core.engine import Capability
from conformance.core.pooled import PoolCall, Pooled, Prefix
from miniatures.caching import KeepsPrefixes

TOKEN = 4  # bytes
PLENTY = 1 << 20
NOTHING = Prefix(0, ())


class KeepsAPool(KeepsPrefixes):
    """Reports its calls; with files it keeps blocks there, too."""

    capabilities = KeepsPrefixes.capabilities | {Capability.POOLED, Capability.TENANTS}

    def __init__(self, model, options):
        super().__init__(model, options)
        self.calls, self.names, self.holds = [], set(), {}
        caching = options.prefix_caching
        self.rules = Rules(caching) if caching is not None else None
        self.most = 0 if caching is not None and caching.times_first == 0 else PLENTY

    def insert(self, submissions):
        if self.names and self.rules.caching.restarts and not (self.queue or self.decode):
            self.call(PoolCall.RESTART)
        super().insert(submissions)

    def step(self):
        output = super().step()
        made, self.calls = tuple(self.calls), []
        return dataclasses.replace(output, pooled=made)

    def call(self, kind, prefix=NOTHING, **more):
        """What it finds; with the state of the pool afterwards."""
        size = self.rules.caching.block_size
        more |= {"on_disk": self.rules.caching.disk, "most": self.most}
        sizes = dict.fromkeys(self.names, TOKEN * size)
        found = self.rules.play(Pooled(kind, prefix, sizes=sizes, **more))
        kept = {
            "free": tuple(self.rules.free),
            "held": dict(self.rules.held),
            "sizes": dict(self.rules.sizes),
        }
        after = Pooled(kind, prefix, found=found, **(kept | more))
        self.calls.append(dataclasses.replace(after, counted=self.rules.counted(after)))
        return found

    def reuse(self, row):
        prefix = Prefix(self.key(row.request), tuple(row.todo[:-1]))
        count = self.call(PoolCall.FIND, prefix)
        self.holds[row.name] = tuple(self.rules._blocks(prefix))[: count // self.size]
        on_disk = self.call(PoolCall.FIND_ON_DISK, prefix, least=count)
        if count := max(count, on_disk):
            self.reused[row.name] = count
            row.fed, row.todo = row.todo[:count], row.todo[count:]

    @property
    def size(self):
        return self.rules.caching.block_size

    def key(self, request):
        shown = tuple((medium.kind, medium.content) for medium in request.media)
        return hash((request.tenant, shown))

    def start_decoding(self, processed):
        before = list(self.decode)
        super().start_decoding(processed)
        for row in self.decode if self.rules is not None else ():
            if row not in before:
                self.keep_row(row)

    def keep_row(self, row):
        prefix = Prefix(self.key(row.request), tuple(row.request.prompt))
        self.names |= set(self.rules._blocks(prefix))
        held = dict(self.rules.held)
        bytes_of = {"nbytes": TOKEN * len(prefix.tokens), "block_bytes": TOKEN * self.size}
        least = len(self.holds.get(row.name, ())) * self.size
        self.call(PoolCall.KEEP, prefix, least=least, **bytes_of)
        new = [b for b, count in self.rules.held.items() if count > held.get(b, 0)]
        self.call(PoolCall.RELEASE, released=(*self.holds.pop(row.name, ()), *new))
        if times := self.rules.caching.times_first:
            first = sum(self.rules.sizes.values())
            self.most = int(times * first) if self.most == PLENTY else self.most


class PoolOfNothing(KeepsAPool):
    """Finds nothing, as it never looks."""

    def reuse(self, row):
        """Begin at the first token."""


class PoolOfOneRow(KeepsAPool):
    """Begins one prompt at a time."""

    def __init__(self, model, options):
        super().__init__(model, msgspec.structs.replace(options, prefill_batch_size=1))
