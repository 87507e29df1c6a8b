"""What a server's prefix pool stores, holds and evicts, in memory and in files.

If a pool stores too much or counts wrongly, no output is wrong, so engines that report its content
are checked against its rules. Prompts begin with one of two texts, so that stored prefixes share
blocks. Only a prompt of 16 tokens or more gets a snapshot.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from msgspec.structs import replace

from conformance.core.engine import Capability
from conformance.core.engine_options import KV_GROUPS, EngineOptions, KvQuant, PrefixCaching
from conformance.core.family import Family
from conformance.core.pooled import PoolCall, Pooled
from conformance.core.schedule import Media, Request, Schedule
from conformance.core.trace import Trace
from conformance.scenarios import reuse_witnesses as reuse
from conformance.scenarios.build import (
    LONG,
    MEDIUM,
    PIECE,
    SHORT,
    TENANTS,
    begun_otherwise,
    gone,
    one_by_one,
    together,
)
from conformance.scenarios.scenario import Brief, Scenario, Witness

_SEVERAL = 2


def given_up() -> Witness:
    """A stored block or snapshot was evicted by a call."""
    return Witness(
        "a kept prefix that is given up",
        lambda trace: any(
            set(a.sizes) - set(b.sizes) and b.call is not PoolCall.RESTART
            for a, b in pairwise(_calls(trace))
        ),
    )


def held_by_rows() -> Witness:
    """Several rows held the same block, or rows were restored from several snapshots."""

    def seen(trace: Trace) -> bool:
        calls = list(_calls(trace))
        twice = any(count >= _SEVERAL for call in calls for count in call.held.values())
        found = [c for c in calls if c.call is PoolCall.FIND_SNAPSHOT and c.found]
        return twice or len(found) >= _SEVERAL

    return Witness("prefixes of several rows at once", seen)


def from_files() -> Witness:
    """A prefix was found while nothing was in memory."""
    return Witness(
        "a prefix from files",
        lambda trace: any(_read(a, b) and not a.sizes for a, b in pairwise(_calls(trace))),
    )


def behind_memory() -> Witness:
    """A prefix was found in files while other prefixes were in memory."""
    return Witness(
        "a prefix from files behind memory",
        lambda trace: any(_read(a, b) and a.sizes for a, b in pairwise(_calls(trace))),
    )


def tenants_apart() -> Witness:
    """Each tenant reused its own earlier prompts; its first request reused nothing."""

    def seen(trace: Trace) -> bool:
        tenants = {r.request_id: r.tenant for r in trace.schedule.requests}
        reused = {name for step in trace.steps for name in step.output.reused}
        return {tenants[name] for name in reused} == set(tenants.values())

    return Witness("a reused prefix of each tenant", seen, frozenset({Capability.TENANTS}))


def _read(before: Pooled, call: Pooled) -> bool:
    """Whether a prefix was found that was not in memory before."""
    if call.call not in {PoolCall.FIND_SNAPSHOT, PoolCall.FIND_ON_DISK} or not call.on_disk:
        return False
    known = {name.tokens[: call.found] for name in before.sizes}
    return bool(call.found) and call.prefix.tokens[: call.found] not in known


def _calls(trace: Trace) -> Iterator[Pooled]:
    for step in trace.steps:
        yield from step.output.pooled


BLOCK = 4
# Output tokens: the first comes from the prompt, the second from its stored cache.
FEW = 2
# Tokens of a default block, and of a prompt of more than two blocks.
SERVED, TWO_BLOCKS = 16, 37
# What the server stores by default.
DEFAULTS = PrefixCaching(blocks=2048, block_size=SERVED, snapshots=2, interval=2048, disk=True)


def _prefix_store(brief: Brief) -> list[Schedule]:
    if brief.required:
        return [_tenants(brief)]
    return [
        *_in_turn(brief),
        _held(brief),
        _served(brief),
        *_files(brief),
        _tenants(brief),
        *_quantized(brief),
        *(_media(brief, kind) for kind in brief.modalities if kind != "text"),
    ]


def _texts(brief: Brief) -> list[Request]:
    """Five prompts: some share four blocks, one begins differently; then some are repeated."""
    shared, size = brief.prompt(LONG), 4 * BLOCK
    begun = begun_otherwise(brief, brief.prompt(LONG, variant=1), shared[:1])
    turns = [brief.prompt(MEDIUM, variant=5 + number) for number in range(2)]
    ends = [begun_otherwise(brief, turn, shared[size : size + 1]) for turn in turns]
    prompts = {
        "first": shared,
        "beside": shared[:size] + ends[0],
        "other": begun,
        "longer": shared + ends[1],
        "other_again": begun + ends[0],
        "again": shared,
    }
    return [Request(name, prompt, FEW) for name, prompt in prompts.items()]


def _caching(**options: float | bool) -> PrefixCaching:
    return replace(PrefixCaching(block_size=BLOCK, interval=2 * BLOCK), **options)


def _in_turn(brief: Brief) -> Iterator[Schedule]:
    """Requests in turn, with a pool that fits some of them: by number and by bytes."""
    bounds = {
        "by_number": _caching(blocks=8, snapshots=3),
        "by_bytes": _caching(times_first=2.5),
    }
    for name, bound in bounds.items():
        yield one_by_one(name, _texts(brief), EngineOptions(prefix_caching=bound))


def _held(brief: Brief) -> Schedule:
    """Rows in one prefill, in pieces, hold the blocks that they reuse: no room is left.

    Then a prompt reuses the rest.
    """
    first, _, other, longer, other_again, again = _texts(brief)
    arrivals = (
        together(first),
        together(replace(other, max_tokens=3), longer, again, when=gone("first")),
        together(other_again, when=gone("other")),
    )
    options = EngineOptions(
        prefill_step_size=PIECE, prefix_caching=_caching(blocks=LONG // BLOCK + 1, snapshots=2)
    )
    return Schedule("held", arrivals, options=options)


def _served(brief: Brief) -> Schedule:
    """The server's default settings, with prompts of one block, of two and of less."""
    shared = brief.prompt(TWO_BLOCKS)
    end = begun_otherwise(brief, brief.prompt(SHORT, variant=7), shared[SERVED + 1 : SERVED + 2])
    first, rest = Request("first", shared, FEW), Request("longer", shared + end, FEW)
    one = Request("one_block", shared[: SERVED + 1] + end, FEW)
    less = Request("less", shared[: SERVED - 1], FEW)
    arrivals = (
        together(first),
        together(less, when=gone("first")),
        together(one, rest, when=gone("less")),
        together(replace(first, request_id="again"), when=gone("longer")),
    )
    return Schedule("served", arrivals, options=EngineOptions(prefix_caching=DEFAULTS))


def _files(brief: Brief) -> Iterator[Schedule]:
    """Stored in files alone, behind a pool that is too small, and by an earlier server.

    All of one tenant, so that the key is not the one without a tenant.
    """
    bounds = {
        "files_alone": _caching(disk=True, times_first=0, snapshots=0),
        "files_behind": _caching(disk=True, blocks=3, snapshots=1),
        "files_of_before": _caching(disk=True, restarts=True),
    }
    asked = [replace(request, tenant="a") for request in _texts(brief)]
    for name, bound in bounds.items():
        yield one_by_one(name, asked, EngineOptions(prefix_caching=bound))


def _tenants(brief: Brief) -> Schedule:
    """The same prompt for tenants of short and long names and for none, then for each again."""
    prompt = brief.prompt(LONG)
    if brief.required:
        medium = Media(brief.required, brief.sizes[brief.required][0])
        prompt, media = brief.compose([medium, prompt])
    else:
        media = ()
    names = ("", "a", "b", "A", *TENANTS)
    asked = [
        Request(f"{turn}_of_{number}", prompt, FEW, media=media, tenant=name)
        for turn in ("first", "again")
        for number, name in enumerate(names)
    ]
    return one_by_one("tenants", asked, EngineOptions(prefix_caching=_caching()))


def _quantized(brief: Brief) -> Iterator[Schedule]:
    """Quantized keys and values: prefixes reused by one row, and by rows in one prefill.

    What is kept of those rows, which are padded, is then reused, too.
    """
    sizes = brief.heads() if Capability.QUANTIZED in brief.capabilities else frozenset()
    groups = [group for group in KV_GROUPS if not any(size % group for size in sizes)]
    kinds = {}
    if sizes and groups:
        kinds["uniform"] = KvQuant(8, group_size=groups[0])
    if sizes and "turboquant" in brief.schemes:
        kinds["turbo"] = KvQuant(3.5, scheme="turboquant")
    first, beside, other, longer, other_again, _ = _texts(brief)
    beside_again = replace(beside, request_id="beside_again")
    for name, kv in kinds.items():
        options = EngineOptions(kv=kv, prefix_caching=_caching())
        yield one_by_one(f"{name}_in_turn", [first, beside, longer], options)
        rows = together(beside, other, longer, when=gone("first"))
        later = together(other_again, beside_again, when=gone("longer"))
        yield Schedule(f"{name}_beside", (together(first), rows, later), options=options)


def _media(brief: Brief, kind: str) -> Schedule:
    """One text with a medium; with another; the first again, before other text; text alone."""
    size = brief.sizes[kind][0]
    before, after = brief.prompt(2 * BLOCK + 1), brief.prompt(MEDIUM)

    def shows(name: str, *contents: int, variant: int = 0) -> Request:
        parts: list[tuple[int, ...] | Media] = [before]
        for content in contents:
            parts += [Media(kind, size, content), after]
        if variant:
            parts[-1] = brief.prompt(MEDIUM, variant)
        prompt, media = brief.compose(parts)
        return Request(name, prompt, FEW, media=media)

    requests = [shows("first", 0), shows("other", 1), shows("other_text", 0, variant=1)]
    if kind not in brief.single:
        requests += [shows("two", 0, 1), shows("two_others", 0, 2), shows("two_again", 0, 1)]
    requests += [Request("text", before + after, FEW), shows("again", 0)]
    return one_by_one(f"{kind}_kept", requests, EngineOptions(prefix_caching=_caching()))


def _represents(family: Family) -> str:
    return "" if family.facts.pooled else "other families represent what pools keep"


PREFIX_STORE = Scenario(
    "prefix_store",
    157,
    "what is kept of prompts: which, for how long, for whom, and how it is counted",
    frozenset(
        {
            Capability.PREFIX_CACHING,
            Capability.POOLED,
            Capability.CHUNKED,
            Capability.LATE_JOIN,
            Capability.STAGES,
        }
    ),
    _prefix_store,
    (
        reuse.hit(),
        given_up().shown_in("by_number", "by_bytes"),
        held_by_rows().shown_in("held"),
        from_files().shown_in("files_alone", "files_of_before"),
        behind_memory().shown_in("files_behind"),
        tenants_apart().shown_in("tenants"),
    ),
    applies=_represents,
)
