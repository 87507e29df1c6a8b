"""The options an engine is made with: sizes, caches, drafting, a sampler for all requests."""

from __future__ import annotations

import msgspec

from conformance.core.token_choice import Processor, Sampler

# Group sizes of uniform quantization that are tried where heads can be cut into them.
KV_GROUPS = (32, 64)


class KvQuant(msgspec.Struct, frozen=True, omit_defaults=True):
    """How an engine quantizes keys and values.

    ``bits`` per element (fractional where the scheme has it), ``group_size`` in elements,
    ``scheme`` as the library calls it, ``start`` the cache length from which it quantizes.
    """

    bits: float
    group_size: int = 64
    scheme: str = "uniform"
    start: int = 0


class Drafting(msgspec.Struct, frozen=True, omit_defaults=True):
    """Speculative decoding.

    Attributes:
        kind: of drafter, by the library's name.
        block_size: tokens verified at once, including the last one before the draft.
        right: how many tokens of each draft are correct (the oracle's) before a wrong one: for the
            first row of the first round, the next row, and so on; each round begins one entry
            later. Empty: the drafter's own drafts.
    """

    kind: str
    block_size: int | None = None
    right: tuple[int, ...] = ()


class PrefixCaching(msgspec.Struct, frozen=True, omit_defaults=True):
    """Automatic reuse of equal prefixes.

    ``blocks`` of ``block_size`` tokens are kept or, for models whose caches can't be cut into
    blocks, ``snapshots`` of a prompt's whole cache, taken every ``interval`` tokens and at its end.
    ``max_bytes`` bounds kept and live caches together, for engines with such an option;
    ``times_first`` bounds kept ones alone, as a multiple of the bytes of the first one kept; 0
    keeps none in memory. With ``disk`` they are kept in files, too; with ``restarts`` the engine is
    made anew, with the same files, before each request that comes while no other is at work.
    """

    blocks: int = 64
    block_size: int = 4
    snapshots: int = 8
    interval: int = 4
    max_bytes: int | None = None
    times_first: float | None = None
    disk: bool = False
    restarts: bool = False


class EngineOptions(msgspec.Struct, frozen=True, omit_defaults=True):
    """The options an engine is made with.

    ``prefill_step_size`` and ``max_kv_size`` are in tokens, the batch sizes in requests.
    ``max_kv_size`` bounds the cache of families that leave the choice of cache to the library.
    ``kv``, ``drafting`` and ``prefix_caching`` are off if ``None``.

    ``sampler`` and ``processors`` are the engine's own, for requests that bring none. A request
    that names the same ones is inserted without them, so that the engine's must take effect.

    With ``busy`` a long request of a server engine's own is at work while others arrive. ``words``
    are texts of token ids in its tokenizer, in place of the usual. With ``counted`` its own process
    notes the calls of its model.
    """

    prefill_step_size: int = 2048
    prefill_batch_size: int = 8
    completion_batch_size: int = 32
    max_kv_size: int | None = None
    kv: KvQuant | None = None
    drafting: Drafting | None = None
    prefix_caching: PrefixCaching | None = None
    sampler: Sampler | None = None
    processors: tuple[Processor, ...] = ()
    busy: bool = False
    words: tuple[tuple[str, int], ...] = ()
    counted: bool = False
