"""The options of an engine: sizes, caches, drafting, an engine-level sampler."""

from __future__ import annotations

import msgspec

from conformance.core.token_choice import Processor, Sampler

# Group sizes of uniform quantization to try, where they divide the head size.
KV_GROUPS = (32, 64)


class KvQuant(msgspec.Struct, frozen=True, omit_defaults=True):
    """How an engine quantizes keys and values.

    ``bits`` per element (may be fractional), ``group_size`` in elements, ``scheme`` in the
    library's terms, ``start`` the cache length from which it quantizes.
    """

    bits: float
    group_size: int = 64
    scheme: str = "uniform"
    start: int = 0


class Drafting(msgspec.Struct, frozen=True, omit_defaults=True):
    """Speculative decoding.

    Attributes:
        kind: the library's name for the kind of drafter.
        block_size: tokens verified at once, including the last token before the draft.
        right: how many tokens of each draft are correct (the oracle's) before a wrong one: for the
            first row of the first round, the next row, and so on; each round begins one entry
            later. Empty: the drafter's own drafts.
        compared: the drafter's own tokens are compared with those that it proposes for each row
            alone, whatever is verified instead.
        likely: each draft begins with the model's likeliest token, where the engine can edit the
            drafter's own drafts: so that rows which draw at random often accept it.
    """

    kind: str
    block_size: int | None = None
    right: tuple[int, ...] = ()
    compared: bool = False
    likely: bool = False


class PrefixCaching(msgspec.Struct, frozen=True, omit_defaults=True):
    """Automatic reuse of equal prefixes.

    The engine keeps ``blocks`` of ``block_size`` tokens or, for models whose caches can't be cut
    into blocks, ``snapshots`` of a prompt's whole cache, taken every ``interval`` tokens and at its
    end. ``max_bytes`` bounds kept and live caches together, for engines with such an option;
    ``times_first`` bounds the kept caches alone, as a multiple of the bytes of the first one; with
    0, none are kept in memory; ``tokens`` bounds them to the bytes of so many tokens, for servers
    with an option in bytes. With ``disk``, they are kept in files, too; with ``restarts``, the
    engine is made again with the same files before each request that arrives while no other is
    running.
    """

    blocks: int = 64
    block_size: int = 4
    snapshots: int = 8
    interval: int = 4
    max_bytes: int | None = None
    times_first: float | None = None
    tokens: int | None = None
    disk: bool = False
    restarts: bool = False


TWIN = -1
"""The number of a draft model with the weights of the model that it drafts for."""


class EngineOptions(msgspec.Struct, frozen=True, omit_defaults=True):
    """The options of an engine.

    ``prefill_step_size`` and ``max_kv_size`` are in tokens, the batch sizes in requests.
    ``max_kv_size`` bounds the cache of families that leave the choice of cache to the library.
    ``kv``, ``drafting`` and ``prefix_caching`` are off if ``None``.

    ``max_tokens`` (0: the library's own), ``sampler``, ``processors`` and ``stop`` (sequences of
    token ids) are engine-level defaults, for requests without their own. A request that names the
    same ones is inserted without them, so that the defaults must take effect.

    With ``busy``, a server runs a long request of its own while others arrive. ``words`` are the
    texts of token ids in its tokenizer, instead of the usual texts; with ``pieces``, the kind of
    tokenizer, they are its pieces, such as single bytes; with ``markers``, the style of its models'
    calls of tools, they have markers among them. With ``counted``, the server's process
    records the calls of its model. ``adapter`` is the number of the adapter with which a server
    starts, ``draft_model`` that of the other model which drafts for it; 0 is none, ``TWIN`` the
    same model. With ``listed``, a server is asked which models it has, where none was ever
    downloaded.
    """

    prefill_step_size: int = 2048
    prefill_batch_size: int = 8
    completion_batch_size: int = 32
    max_kv_size: int | None = None
    kv: KvQuant | None = None
    drafting: Drafting | None = None
    prefix_caching: PrefixCaching | None = None
    max_tokens: int = 0
    sampler: Sampler | None = None
    processors: tuple[Processor, ...] = ()
    stop: tuple[tuple[int, ...], ...] = ()
    busy: bool = False
    words: tuple[tuple[str, int], ...] = ()
    pieces: str = ""
    markers: str = ""
    counted: bool = False
    adapter: int = 0
    draft_model: int = 0
    listed: bool = False
