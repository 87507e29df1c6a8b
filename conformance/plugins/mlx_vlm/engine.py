"""mlx-vlm's ``BatchGenerator`` as an engine, called as the library's server calls it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any, ClassVar

import mlx.core as mx

from conformance.backend.cache_entries import pending_edges
from conformance.backend.recorded_processors import RecordedProcessors
from conformance.backend.recorded_sampler import RecordedSampler, recorded
from conformance.backend.redrawing import ComparedSampler
from conformance.core.accepted_fields import Accepted, Passed, Recorder, parameters_of
from conformance.core.counted import Counted
from conformance.core.engine import Capability, Engine, Submission
from conformance.core.engine_options import Drafting, EngineOptions, PrefixCaching
from conformance.core.schedule import Schedule, Stage, own_limit, own_processors
from conformance.core.trace import (
    CachedLayer,
    Claim,
    FinishReason,
    ProbeResult,
    StepOutput,
    TokenEvent,
    own_logprob,
    unused,
    watched,
)
from conformance.plugins.mlx_vlm import compat, prefix_caching, quantization
from conformance.plugins.mlx_vlm.counting import Counting
from conformance.plugins.mlx_vlm.drafters import DraftEditor, drafter_of
from conformance.plugins.mlx_vlm.inputs import embed, inputs_of, plain_request
from conformance.plugins.mlx_vlm.legacy import embed_together
from conformance.plugins.mlx_vlm.model import LoadedModel
from conformance.plugins.mlx_vlm.pool_recording import PoolRecording
from conformance.plugins.mlx_vlm.sampling import (
    ForcedRowsSampler,
    alternatives,
    criteria_of,
    distribution,
    end_at,
    make_processors,
    make_sampler,
    stop_tokens,
    stopping_criteria,
)
from conformance.plugins.recorded_calls import inserted, made, record

# The token of an event without a token.
NO_TOKEN = -1


class MlxVlmEngine(Engine):
    """Continuous batching, like mlx-vlm's server: one embedding call for each request.

    There are no samplers, stop sequences or prompt segments by request, and no returned caches, so
    scenarios about these do not apply. All requests share the generator's stop tokens.
    """

    name: ClassVar[str] = "mlx_vlm"
    library: ClassVar[str] = "mlx_vlm"
    capabilities: ClassVar[frozenset[Capability]] = frozenset(Capability) - {
        Capability.SAVED,
        Capability.COMPLETIONS,
        Capability.SERVED,
        Capability.SAMPLERS,
        Capability.STOP,
        Capability.SEGMENTS,
        Capability.PREFIX,
        Capability.WEIGHED,
        Capability.STORED,
    }

    def __init__(self, model: LoadedModel, options: EngineOptions) -> None:
        self._loaded = model.fresh()
        self._options = options
        self._generator: Any = None
        self._ids: dict[int, str] = {}
        self._claims: list[Claim] = []
        self._lengths: dict[int, int] = {}
        self._forced: dict[int, tuple[int, ...]] = {}
        self._stops: set[int] = set()
        self._criteria = stopping_criteria()
        self._reused: dict[int, int] = {}
        self._manager: Any = None
        self._pool: PoolRecording | None = None
        self._files: TemporaryDirectory[str] | None = None
        self._draft_editor: DraftEditor | None = None
        self._counting = Counting()
        self._sampler: RecordedSampler | None = None
        self._recorded = RecordedProcessors()
        self._processors = self._recorded.recorded(make_processors(options.processors))

    def insert(self, submissions: Sequence[Submission]) -> None:
        """Call ``insert`` for each request with its own embeddings, like the server."""
        caching = self._options.prefix_caching
        if self._generator is not None and caching is not None and caching.restarts:
            self._restart()
        if self._generator is None:
            self._generator = self._make(any(s.forced for s in submissions))
        for submission in submissions:
            request = submission.request
            self._stops |= stop_tokens(request)
            end_at(self._criteria, self._stops)
            options: dict[str, Any] = {}
            processors = self._processors
            if own := own_processors(request, self._options):
                processors = self._recorded.recorded(make_processors(own))
                options["logits_processors"] = [processors]
            if request.budget is not None:
                options["thinking_budget_criteria"] = [criteria_of(request.budget)]
            made = inputs_of(self._loaded, request)
            if self._manager is not None:
                prefix_caching.prepare(self._generator, len(request.prompt))
            together = compat.embeds_together()
            limit = request.max_tokens if together else own_limit(request, self._options)
            prompt_kwargs: dict[str, Any] = (
                {"inputs": made} if together else embed(self._loaded, made)
            )
            if self._manager is not None:
                key = prefix_caching.semantic_hash(self._loaded, made, request.tenant)
                prompt_kwargs["_apc_semantic_hash"] = key
            (uid,) = self._generator.insert(
                [list(request.prompt)],
                max_tokens=limit,
                prompt_kwargs=[prompt_kwargs],
                **options,
            )
            self._claims.append(unused(uid, self._ids))
            self._ids[uid] = request.request_id
            self._lengths[uid] = len(request.prompt)
            if self._options.drafting is None:  # else processors see drafts that are not accepted
                self._recorded.add(request.request_id, processors, request.prompt)
            if submission.forced:
                self._forced[uid] = submission.forced
            if self._draft_editor is not None:
                self._draft_editor.add(request.request_id, submission.hints, request.prompt)

    def step(self) -> StepOutput:
        """Call ``next()``: a decode step for the decoding rows, then one piece of prefill.

        With a drafter, a decode step is a draft or one of its accepted tokens.
        """
        if self._generator is None:
            return StepOutput()
        before = self._done()
        if self._draft_editor is not None:
            self._draft_editor.begin_step(
                [self._ids[u] for u in compat.decode_rows(self._generator)]
            )
        with self._counting.measured():
            progress, responses = self._generator.next()
        self._counting.add(progress, self._ids)
        if self._manager is not None:
            lengths = [self._lengths.get(response.uid, 0) for response in responses]
            prefix_caching.require_stored(self._manager, max(lengths, default=0))
        reused = compat.reused(self._generator, progress)
        joined = {uid: count for uid, count in reused.items() if uid not in self._reused}
        self._reused |= joined
        before |= joined
        processed = {
            self._ids[uid]: done - before.get(uid, 0)
            for uid, done in self._done().items()
            if done > before.get(uid, 0)
        }
        events = tuple(self._event(r) for r in responses)
        if self._sampler is not None:
            reported = [event for event in events if event.logprobs is not None]
            self._claims += [self._sampler.claim(event) for event in reported]
            if isinstance(compared := self._sampler.sampler, ComparedSampler):
                self._claims += [compared.claim(*call) for call in compared.drawn()]
        both = [e for e in events if e.logprobs is not None and e.token_logprob is not None]
        self._claims += [own_logprob(event) for event in both]
        self._claims += [alternatives(r.top_logprobs) for r in responses if r.top_logprobs]
        drafts = self._draft_editor
        self._claims += drafts.claims() if drafts is not None else ()
        self._claims += self._recorded.claims(events)
        claims, self._claims = tuple(self._claims), []
        return StepOutput(
            events,
            processed,
            reused={self._ids[uid]: count for uid, count in joined.items()},
            drafted=drafts.drafted if drafts is not None else {},
            proposed=drafts.proposed() if drafts is not None else {},
            pooled=self._pool.calls() if self._pool is not None else (),
            claims=claims,
        )

    def remove(self, request_ids: Sequence[str]) -> None:
        """Call ``remove`` for each uid: it takes only one."""
        for name in request_ids:
            self._generator.remove(self._uid(name))
            self._claims += self._recorded.removed(name)

    def close(self) -> None:
        """Close the ``BatchGenerator`` and the writer of kept prefixes' files."""
        if self._generator is not None:
            self._generator.close()
        if self._manager is not None:
            self._manager.close()
        if self._files is not None:
            self._files.cleanup()

    def stages(self) -> Mapping[str, Stage]:
        """The stages by the generator's queue, prompt batch and generation batch."""
        if self._generator is None:
            return {}
        stages = compat.uids_by_stage(self._generator)
        return {self._ids[uid]: stage for uid, stage in stages.items() if uid in self._ids}

    def rows(self) -> Mapping[str, int]:
        """The rows of the generation batch."""
        if self._generator is None:
            return {}
        rows = enumerate(compat.decode_rows(self._generator))
        return {self._ids[uid]: row for row, uid in rows if uid in self._ids}

    def cache_bytes(self) -> int | None:
        """The sum over all caches in prefill and in decode, by their own count.

        Blocks of a prefix cache count only while a request uses them.
        """
        if self._generator is None:
            return 0
        used = prefix_caching.used_bytes(self._manager) if self._manager is not None else 0
        counts = (compat.nbytes(cache) for cache in compat.caches(self._generator))
        return used + sum(counts)

    def counted(self) -> Counted | None:
        """``BatchGenerator.stats`` and the reports of ``next``; before 0.5 there were neither."""
        if self._generator is None or compat.embeds_together():
            return None
        return self._counting.counted(self._generator.stats(), reported=compat.reports_prefills())

    def layers(self) -> Sequence[CachedLayer]:
        """The layers of the generation batch."""
        if self._generator is None:
            return ()
        return quantization.layers(compat.decode_caches(self._generator))

    def pending(self) -> int | None:
        """Pending work of the decoding batch."""
        if self._generator is None:
            return None
        return pending_edges(compat.decode_caches(self._generator))

    def probe(self, kind: str) -> ProbeResult:
        """See ``probes``."""
        return probe(self._generator, self._loaded, kind)

    @classmethod
    def probes(cls) -> tuple[str, ...]:
        """See ``probes``."""
        return tuple(PROBES)

    @classmethod
    def accepted(cls) -> Accepted:
        """See ``Engine.accepted``."""
        generator = compat.generation().BatchGenerator
        return {m.__qualname__: parameters_of(m) for m in (generator.__init__, generator.insert)}

    @classmethod
    def passed(cls, model: Any, schedule: Schedule) -> Sequence[Passed]:
        """See ``Engine.passed``."""
        recorder, generator = Recorder(), compat.generation().BatchGenerator
        patches = (
            made(recorder, generator, generator.__init__.__qualname__),
            inserted(recorder, generator, "insert", generator.insert.__qualname__),
        )
        return record(cls, model, schedule, recorder, patches)

    def _make(self, forced: bool) -> Any:  # noqa: FBT001
        model = self._loaded.language_model
        options: dict[str, Any] = {"top_logprobs_k": self._loaded.family.vocab_size}
        if forced:
            options["sampler"] = ForcedRowsSampler(
                self._token, lambda: compat.sampled_positions(self._generator)
            )
        elif self._options.sampler is not None and self._options.drafting is not None:
            # A draft's tokens are chosen several at once, and reported without their logprobs.
            options["sampler"] = make_sampler(self._options.sampler)
        elif (sampler := recorded(make_sampler(self._options.sampler))) is not None:
            options["sampler"] = self._sampler = sampler
        if self._processors:
            options["logits_processors"] = self._processors
        if compat.embeds_together():
            options["embed"] = lambda made: embed_together(self._loaded, made)
        if self._options.drafting is not None:
            options |= self._draft(self._options.drafting)
        if self._options.prefix_caching is not None:
            options["apc_manager"] = self._make_manager(self._options.prefix_caching)
        processor = SimpleNamespace(tokenizer=SimpleNamespace(stopping_criteria=self._criteria))
        made = compat.make_generator(model, processor, self._options, **options)
        if self._manager is not None:
            prefix_caching.require(made)
        return made

    def _restart(self) -> None:
        """Restart like a server that is stopped while idle and started again."""
        if self._generator.has_work:
            return
        self._generator.close()
        self._manager.close()
        self._generator = None
        for of_uids in (self._ids, self._lengths, self._forced, self._reused):
            of_uids.clear()

    def _make_manager(self, caching: PrefixCaching) -> Any:
        if caching.disk and self._files is None:
            self._files = TemporaryDirectory()
        folder = self._files.name if self._files is not None else None
        self._manager = prefix_caching.make_manager(caching, folder)
        if self._pool is None:
            self._pool = PoolRecording(self._manager, caching.times_first)
        else:
            self._pool = self._pool.restarted(self._manager)
        return self._manager

    def _draft(self, drafting: Drafting) -> dict[str, Any]:
        """The generator's arguments for a drafter."""
        drafter = drafter_of(self._loaded, drafting.kind).model
        likeliest = self._loaded.likeliest() if drafting.likely else None
        self._draft_editor = DraftEditor(drafter, drafting, likeliest)
        return {
            "draft_model": drafter,
            "draft_kind": drafting.kind,
            "draft_block_size": drafting.block_size,
        }

    def _token(self, row: int, position: int) -> int:
        """The token to force on the row; a row past its last token repeats it.

        Rows of an invalid call that was accepted get any token.
        """
        prefill = position == 0
        rows = compat.prefill_rows if prefill else compat.decode_rows
        tokens = self._forced.get(rows(self._generator)[row], self._loaded.family.tokens)
        return tokens[min(position, len(tokens) - 1)]

    def _done(self) -> dict[int, int]:
        """The number of processed prompt tokens of all requests that are not queued."""
        working = compat.progress(self._generator)
        queued = compat.uids_by_stage(self._generator)
        return {
            uid: working[uid] + self._reused.get(uid, 0) if uid in working else length
            for uid, length in self._lengths.items()
            if queued.get(uid) is not Stage.QUEUED
        }

    def _uid(self, request_id: str) -> int:
        return next(uid for uid, name in self._ids.items() if name == request_id)

    def _event(self, response: Any) -> TokenEvent:
        reason, said = response.finish_reason, response.token_logprob
        # The verification of a draft may end a request without a token.
        token = int(response.token) if response.token is not None else NO_TOKEN
        # An unknown uid is not hidden: the protocol check reports it.
        name = self._ids.get(response.uid, f"unknown uid {response.uid}")
        if self._draft_editor is not None:
            self._draft_editor.record(name, token)
        return TokenEvent(
            request_id=name,
            token=token,
            logprobs=distribution(response.top_logprobs),
            token_logprob=float(said) if said is not None else None,
            finish_reason=FinishReason(reason) if reason is not None else None,
        )


_UNKNOWN_UID = 1_000_003


def _insert(
    lengths: tuple[int, ...] = (3, 2), embedded: tuple[int, ...] = (), **options: Any
) -> Callable[[Any, LoadedModel], object]:
    """A call of ``insert`` with prompts of these lengths, each with its embeddings by default."""

    def call(generator: Any, loaded: LoadedModel) -> object:
        prompts = [_prompt(loaded, n)[0] for n in lengths]
        kwargs = [_prompt(loaded, n)[1] for n in embedded or lengths]
        return generator.insert(prompts, **{"max_tokens": 2, "prompt_kwargs": kwargs, **options})

    return call


def _prompt(loaded: LoadedModel, length: int) -> tuple[list[int], dict[str, Any]]:
    """``length`` tokens of text and the server's arguments for them, which are empty for 0."""
    low, _ = loaded.family.tokens
    request = plain_request(loaded, tuple(range(low, low + max(length, 1))), 1)
    given = embed(loaded, inputs_of(loaded, request))
    if length:
        return list(request.prompt), given
    empty = {n: v[:, :0] for n, v in given.items() if isinstance(v, mx.array) and v.ndim > 1}
    return [], {**given, **empty}


def _construct(**options: Any) -> Callable[[Any, LoadedModel], object]:
    return lambda generator, _: compat.generation().BatchGenerator(
        generator.model, generator.processor, **options
    )


def _remove(generator: Any, _: LoadedModel) -> None:
    """Raise if ``remove`` returns that it does not know the uid."""
    if generator.remove(_UNKNOWN_UID) is False:
        raise KeyError("remove returned False")


PROBES: Mapping[str, Callable[[Any, LoadedModel], object]] = {
    "mismatched_max_tokens": _insert(max_tokens=[4]),
    "mismatched_processors": _insert(logits_processors=[[], [], []]),
    "mismatched_prompt_kwargs": _insert(embedded=(3,)),
    "mismatched_embeddings": _insert(embedded=(3, 7)),
    "empty_prompt": _insert((3, 0)),
    "zero_max_tokens": _insert(max_tokens=[4, 0]),
    "negative_max_tokens": _insert(max_tokens=[4, -1]),
    "unknown_uid": _remove,
    "unknown_kv_scheme": _construct(kv_bits=8, kv_quant_scheme="no such scheme"),
    "zero_completion_batch": _construct(completion_batch_size=0, prefill_batch_size=0),
    "negative_prefill_batch": _construct(prefill_batch_size=-1),
    "negative_prefill_step": _construct(prefill_step_size=-1),
}


def probe(generator: Any, loaded: LoadedModel, kind: str) -> ProbeResult:
    """Make the invalid call ``kind`` on a working generator; the result has what it changed."""
    return watched(kind, lambda: PROBES[kind](generator, loaded), lambda: compat.digest(generator))
