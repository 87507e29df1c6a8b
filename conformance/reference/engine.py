"""A continuous-batching engine that is right by construction, and simple rather than fast.

A step is: schedule, run, postprocess. Every row is one ``Sequence`` with its own caches, so a row
joins, leaves or is cancelled by adding an object to a list or removing it.

It does not know how samplers and processors are made (``Makers``), nor how a model's library writes
its caches (``caches``). A token is chosen on the host after each pass; a fast engine would start
the next pass earlier.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import mlx.core as mx
import numpy as np
from mlx_lm.models.cache import CacheList, KVCache, make_prompt_cache

from conformance.backend.cache_entries import floating, leaves, pending_edges, weigh
from conformance.backend.sampling import ForcedSampler, ProcessorFn, SamplerFn
from conformance.core.engine import Capability, Engine, Submission
from conformance.core.engine_options import EngineOptions, KvQuant
from conformance.core.errors import Unsupported
from conformance.core.schedule import Stage
from conformance.core.token_choice import Processor, Sampler
from conformance.core.trace import (
    CachedLayer,
    FinishReason,
    KeptCache,
    ProbeResult,
    StepOutput,
    TokenEvent,
)
from conformance.reference import drafting, probes, sequence
from conformance.reference.caches import even
from conformance.reference.caches.wrap import must_be_even
from conformance.reference.forward import Feed, single_row


@dataclass(frozen=True)
class Makers:
    """How a library makes a request's sampler (``None`` is greedy) and processors."""

    sampler: Callable[[Sampler | None], SamplerFn | None]
    processors: Callable[[tuple[Processor, ...]], list[ProcessorFn]]


class ReferenceEngine(Engine):
    """The common part of the three ways of prefill; their ``step`` puts rows into passes.

    Class attributes:
        makers: makers of samplers and processors, set by a plugin.
        whole_prompt: the last token of a prompt in pieces is in its last piece.
        pads: rows with unequal numbers of new tokens may share a pass.
    """

    library: ClassVar[str] = "mlx_lm"
    capabilities: ClassVar[frozenset[Capability]] = frozenset(Capability) - {
        Capability.BUDGETS,
        Capability.SAVED,
        Capability.METERED,
        Capability.COMPLETIONS,
        Capability.SERVED,
        Capability.MEDIA,
        Capability.PREFIX_CACHING,
        Capability.STORED,
        Capability.POOLED,
        Capability.TENANTS,
    }
    makers: ClassVar[Makers]
    whole_prompt: ClassVar[bool] = False
    pads: ClassVar[bool] = True
    drafters: ClassVar[tuple[str, ...]] = (drafting.KIND,)

    def __init__(self, model: Any, options: EngineOptions, *, draft_model: Any = None) -> None:
        probes.check_options(options)
        self.model = model
        self.options = options
        self.queue: list[sequence.Sequence] = []
        self.prefilling: list[sequence.Sequence] = []
        self.decoding: list[sequence.Sequence] = []
        self.finished: dict[str, sequence.Sequence] = {}
        self._drafts = drafting.Drafts(draft_model or model, options.drafting)

    def insert(self, submissions: Sequence[Submission]) -> None:
        """Insert all or none: each is checked before the first is inserted."""
        live = {row.name for row in self._live()}
        probes.check_requests([s.request for s in submissions], live | set(self.finished))
        self.queue += [self._row(submission) for submission in submissions]

    def remove(self, request_ids: Sequence[str]) -> None:
        """Remove rows at any stage. Nothing else refers to them."""
        probes.check_known(request_ids, {row.name for row in self._live()})
        for rows in (self.queue, self.prefilling, self.decoding):
            rows[:] = [row for row in rows if row.name not in request_ids]

    def close(self) -> None:
        """Drop all rows."""
        for rows in (self.queue, self.prefilling, self.decoding):
            rows.clear()
        self.finished.clear()

    def stages(self) -> Mapping[str, Stage]:
        """The stage of each live request."""
        places = (
            (Stage.QUEUED, self.queue),
            (Stage.PREFILL, self.prefilling),
            (Stage.DECODE, self.decoding),
        )
        return {row.name: stage for stage, rows in places for row in rows}

    def rows(self) -> Mapping[str, int]:
        """Rows of the decode pass."""
        return {row.name: index for index, row in enumerate(self.decoding)}

    def cache_bytes(self) -> int | None:
        """Bytes of all live rows; queued rows hold nothing yet, or their prefix."""
        held = [row.caches + row.draft_caches for row in self._live()]
        return sum(
            int(leaf.nbytes) for caches in held for leaf in leaves(caches) if not leaf.empty()
        )

    def pending(self) -> int:
        """Caches of the decoding rows, by layer."""
        return pending_edges([cache for row in self.decoding for cache in row.caches])

    def give_up(self, request_id: str, *, computed: bool) -> KeptCache:
        """Of the finished row."""
        caches = self.finished.pop(request_id).caches
        self.finished.clear()
        return weigh(request_id, caches, computed=computed)

    def layers(self) -> Sequence[CachedLayer]:
        """Of the rows that decode."""
        by_layer = zip(*(row.caches for row in self.decoding), strict=True)
        return [described(caches) for caches in by_layer]

    def extract(self, request_id: str) -> Any:
        """A copy of the row's caches including its last token, and the tokens that they hold.

        Finished rows are kept until ``close`` for this: any request may continue from them.
        """
        row = self.finished.get(request_id) or next(
            row for row in self.decoding if row.name == request_id
        )
        caches, tokens = row.copy_caches(), row.tokens
        if row.todo:
            single_row(self.model, Feed(caches, tuple(row.todo)))
        return caches, tokens

    def probe(self, kind: str) -> ProbeResult:
        """See ``probes``."""
        return probes.probe(self, kind)

    @classmethod
    def probes(cls) -> tuple[str, ...]:
        """See ``probes``."""
        return tuple(probes.PROBES)

    @classmethod
    def apart(cls, model: Any) -> str:
        """See ``caches.even``."""
        return even.APART if must_be_even(make_prompt_cache(model)) else ""

    def admit(self) -> None:
        """Move rows that fit into a prefill batch and into the slots from the queue."""
        free = self.options.completion_batch_size - len(self.decoding) - len(self.prefilling)
        count = max(0, min(free, self.options.prefill_batch_size - len(self.prefilling)))
        self.prefilling += self.queue[:count]
        del self.queue[:count]

    def start_decoding(self) -> dict[str, int]:
        """Move rows whose prompt is done except for its last token; return their tokens left."""
        ready = [row for row in self.prefilling if not row.pieces]
        self.prefilling = [row for row in self.prefilling if row.pieces]
        self.decoding += ready
        return {row.name: len(row.todo) for row in ready}

    def decode(self, feeds_of_prefill: Sequence[Feed] = ()) -> tuple[Round, list[mx.array]]:
        """One pass over the decoding rows, together with pieces of prompts.

        Returns: the output of the rows, and the logits ``[tokens, vocab]`` of each piece.
        """
        rows = list(self.decoding)
        drafts = self._drafts.propose(rows)
        events: list[TokenEvent] = []
        verified, logits = drafting.verify(self.model, rows, drafts, feeds_of_prefill)
        for row, chosen in zip(rows, verified, strict=True):
            for token, logprobs, reason in chosen:
                events.append(self._event(row, token, logprobs, reason))
        drafted = {row.name: len(d) for row, d in zip(rows, drafts, strict=True) if d}
        return Round(events, drafted, self._drafts.proposed), logits

    def finish(self, events: Sequence[TokenEvent]) -> None:
        """Move out the rows whose last token is among these events."""
        over = {event.request_id for event in events if event.finish_reason is not None}
        for rows in (self.prefilling, self.decoding):
            self.finished |= {row.name: row for row in rows if row.name in over}
            rows[:] = [row for row in rows if row.name not in over]

    def first_token(self, row: sequence.Sequence, logits: mx.array) -> TokenEvent:
        """Choose the token after a prompt, from logits ``[vocab]`` of its last token."""
        token, logprobs = row.choose(logits, row.history)
        row.todo = [token]
        return self._event(row, token, logprobs, row.accept(token))

    def _live(self) -> list[sequence.Sequence]:
        return [*self.queue, *self.prefilling, *self.decoding]

    def _row(self, submission: Submission) -> sequence.Sequence:
        request = submission.request
        caches, tokens = submission.prefix or (
            make_prompt_cache(self.model, self.options.max_kv_size),
            [],
        )
        if self.options.kv is not None:
            caches = from_the_start(caches, self.options.kv, len(request.prompt))
        forced = ForcedSampler(submission.forced) if submission.forced else None
        return sequence.Sequence(
            request=request,
            caches=list(caches),
            todo=list(request.prompt),
            pieces=sequence.pieces_of(
                request,
                self.options.prefill_step_size,
                # What a bounded cache keeps of its first tokens depends on where pieces end.
                whole=self.whole_prompt and self.options.max_kv_size is None,
            ),
            sampler=forced or self.makers.sampler(request.sampler),
            processors=self.makers.processors(request.processors),
            history=list(tokens),
            hints=submission.hints,
            pads=self.pads,
        )

    @staticmethod
    def _event(
        row: sequence.Sequence, token: int, logprobs: mx.array, reason: FinishReason | None
    ) -> TokenEvent:
        table = np.array(logprobs.astype(mx.float32))  # [vocab]
        return TokenEvent(row.name, token, table, float(table[token]), reason)


@dataclass(frozen=True)
class Round:
    """The output of a pass over the decoding rows: tokens, and drafts as in ``StepOutput``."""

    events: list[TokenEvent]
    drafted: dict[str, int]
    proposed: dict[str, tuple[int, ...]]


def output(round_: Round, processed: Mapping[str, int]) -> StepOutput:
    """A step's output."""
    return StepOutput(
        tuple(round_.events), processed, drafted=round_.drafted, proposed=round_.proposed
    )


def from_the_start(caches: Sequence[Any], kv: KvQuant, prompt_length: int) -> list[Any]:
    """A row's caches, quantized if its prompt is not shorter than ``kv.start``.

    Raises:
        Unsupported: a scheme other than ``uniform``, or no layer that keeps all its keys.
    """
    if kv.scheme != "uniform" or kv.bits != int(kv.bits):
        raise Unsupported(f"quantization {kv.scheme} with {kv.bits} bits is not supported")
    if not any(type(leaf) is KVCache for leaf in leaves(caches)):
        raise Unsupported("no layer keeps keys and values that could be quantized: not supported")
    if prompt_length < kv.start:
        return list(caches)
    return [_quantized(cache, kv) for cache in caches]


def described(caches: Sequence[Any]) -> CachedLayer:
    """The bytes of one layer's ``caches``, and whether they are quantized."""
    held = [leaf for leaf in leaves(caches) if not leaf.empty()]
    return CachedLayer(
        nbytes=sum(leaf.nbytes for leaf in held),
        quantized=any(hasattr(c, "bits") for c in held),
        dtypes=floating(held),
    )


def _quantized(cache: Any, kv: KvQuant) -> Any:
    if isinstance(cache, CacheList):
        return CacheList(*(_quantized(inner, kv) for inner in cache.caches))
    if type(cache) is not KVCache:
        return cache
    return cache.to_quantized(group_size=kv.group_size, bits=int(kv.bits))
