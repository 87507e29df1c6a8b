"""mlx-lm's ``BatchGenerator`` as an engine, and the invalid calls that it must refuse."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import mlx.core as mx
import numpy as np
from mlx_lm import sample_utils
from mlx_lm.generate import BatchGenerator

from conformance.backend.cache_entries import floating, pending_edges, weigh
from conformance.backend.random_state import can_draw, drawing_kept
from conformance.backend.recorded_processors import RecordedProcessors
from conformance.backend.recorded_sampler import RecordedSampler, recorded
from conformance.backend.sampling import ForcedSampler
from conformance.core.accepted_fields import Accepted, Passed, Recorder, parameters_of
from conformance.core.counted import Counted
from conformance.core.engine import Capability, Engine, Submission
from conformance.core.engine_options import EngineOptions
from conformance.core.errors import Unsupported
from conformance.core.schedule import (
    Request,
    Schedule,
    Stage,
    own_limit,
    own_processors,
    own_sampler,
    own_stop,
)
from conformance.core.token_choice import Sampler
from conformance.core.trace import (
    CachedLayer,
    FinishReason,
    KeptCache,
    ProbeResult,
    StepOutput,
    TokenEvent,
    watched,
)
from conformance.plugins.mlx_lm import compat
from conformance.plugins.mlx_lm.claims import Claims, Counting
from conformance.plugins.mlx_lm.compat import digest
from conformance.plugins.mlx_lm.prefix_caching import PrefixCache, Start
from conformance.plugins.mlx_lm.sampling import make_processors, make_sampler
from conformance.plugins.recorded_calls import inserted, made, record

_INSERTS = ("insert", "insert_segments")


class MlxLmEngine(Engine):
    """Continuous batching, in the way of mlx-lm's own server."""

    name: ClassVar[str] = "mlx_lm"
    library: ClassVar[str] = "mlx_lm"
    capabilities: ClassVar[frozenset[Capability]] = frozenset(Capability) - {
        Capability.BUDGETS,
        Capability.COMPLETIONS,
        Capability.SERVED,
        Capability.MEDIA,
        Capability.QUANTIZED,
        Capability.SPECULATIVE,
        Capability.POOLED,
        Capability.TENANTS,
        *(() if compat.samples_rows() else (Capability.FORCED,)),
    }

    def __init__(self, model: Any, options: EngineOptions) -> None:
        self._sampler = recorded(make_sampler(options.sampler))
        self._recorded = RecordedProcessors()
        self._processors = self._recorded.recorded(make_processors(options.processors))
        self._generator = compat.make_generator(model, options, self._sampler, self._processors)
        self._claims = Claims(self._generator)
        self._options = options
        self._counting = Counting(self._generator)
        self._ids: dict[int, str] = {}
        self._progress: dict[int, int] = {}
        self._finished_caches: dict[str, Any] = {}
        self._shared_samplers: dict[str, RecordedSampler] = {}
        self._stops: dict[tuple[tuple[int, ...], ...], Any] = {}
        # What each request's tokens are chosen with, unless they are forced or greedy.
        self._samplers: dict[str, RecordedSampler] = {}
        caching = options.prefix_caching
        self._prefix_cache = PrefixCache(caching) if caching is not None else None
        self._reused: dict[int, int] = {}

    def insert(self, submissions: Sequence[Submission]) -> None:
        """Insert all submissions in one call of ``insert``, or of ``insert_segments`` if needed.

        With prefix caching there is one call for each submission, as in the server.

        Raises:
            Unsupported: a request has a cache of its own, with prefix caching.
        """
        if self._prefix_cache is None:
            self._insert(submissions)
            return
        for submission in submissions:
            if submission.prefix is not None:
                raise Unsupported("the server keeps caches itself and is given none")
            request = submission.request
            # Servers before 0.31.2 passed whole prompts to their generator.
            whole = not compat.prefills_in_pieces()
            pieces = [list(request.prompt)] if whole else _pieces(request)
            start = self._prefix_cache.fetch(request, pieces)
            (uid,) = self._insert([submission], start)
            self._reused[uid] = len(start.tokens)
            self._claims.live_bytes()
            self._prefix_cache.inserted(uid, start, compat.cache_bytes(self._generator))

    def _insert(self, submissions: Sequence[Submission], start: Start | None = None) -> list[int]:
        requests = [s.request for s in submissions]
        options: dict[str, Any] = {}
        if any(own_limit(r, self._options) is not None for r in requests):
            options["max_tokens"] = [r.max_tokens for r in requests]
        samplers = [
            ForcedSampler(s.forced) if s.forced else self._own_sampler(s.request)
            for s in submissions
        ]
        # Omitted if no request needs it, so that the library's own defaults are tested.
        if any(samplers):
            options["samplers"] = samplers
        # If one request of a call has processors, the others no longer get the generator's own
        # (mlx_lm/generate.py:859), so they are passed explicitly.
        processors = [self._processors] * len(requests)
        if any(own_processors(r, self._options) for r in requests):
            processors = [self._recorded.recorded(make_processors(r.processors)) for r in requests]
            options["logits_processors"] = compat.processors_argument(processors)
        if any(s.prefix is not None for s in submissions):
            prefixes: list[tuple[Any, Any]] = [s.prefix or (None, []) for s in submissions]
            options["caches"] = [cache for cache, _ in prefixes]
            options["all_tokens"] = [list(tokens) for _, tokens in prefixes]
        if any(own_stop(r, self._options) for r in requests):
            options |= compat.stop_argument([r.stop for r in requests], self._stops)
        pieces = [start.segments] if start is not None else [_pieces(r) for r in requests]
        if start is not None:
            options |= {"caches": [start.cache], "all_tokens": [start.tokens]}
        earlier = [tuple(tokens) for tokens in options.get("all_tokens", [()] * len(requests))]
        if start is not None or any(r.segments for r in requests):
            uids = self._generator.insert_segments(pieces, **options)
        else:
            uids = self._generator.insert([list(r.prompt) for r in requests], **options)
        for uid, request, own, tokens in zip(uids, requests, pieces, earlier, strict=True):
            self._ids[uid] = request.request_id
            self._progress[uid] = 0
            self._claims.inserted(uid, own, tokens)
        for submission, given in zip(submissions, processors, strict=True):
            before = submission.prefix[1] if submission.prefix is not None else ()
            request = submission.request
            self._recorded.add(request.request_id, given, (*before, *request.prompt))
        return list(uids)

    def step(self) -> StepOutput:
        """Call ``next()``: a decode step for the decoding rows, then one piece of prefill."""
        with self._counting.measured():
            prompt_responses, responses = self._generator.next()
        processed: dict[str, int] = {}
        before_decoding = 0
        for response in prompt_responses:
            done = response.progress[0]
            name = self._name(response.uid)
            more = done - self._progress.get(response.uid, 0)
            processed[name] = processed.get(name, 0) + more
            if getattr(response, "end_of_prompt", False):
                self._claims.ends(response)
            else:
                before_decoding += more
                self._claims.piece(response)
            self._progress[response.uid] = done
        reused = {
            self._name(r.uid): count
            for r in prompt_responses
            if (count := self._reused.pop(r.uid, 0))
        }
        if self._prefix_cache is not None:
            self._prefix_cache.store_segments(self._generator, prompt_responses)
            self._prefix_cache.store_checkpoints(self._generator)
            self._prefix_cache.store_finished(responses)
            self._claims.live_bytes()
        self._claims.step(*self._counting.last, prompts=before_decoding, tokens=len(responses))
        self._claims.rows(self._options)
        for shared in self._shared_samplers.values():
            self._claims.drawn(shared.sampler)
        stored = self._prefix_cache.calls() if self._prefix_cache is not None else ()
        events = tuple(self._event(r) for r in responses)
        for event in events:
            if (sampler := self._samplers.get(event.request_id)) is not None:
                self._claims.chosen(sampler, event)
        claims = (*self._claims.taken(), *self._recorded.claims(events))
        return StepOutput(events, processed, reused=reused, stored=stored, claims=claims)

    def remove(self, request_ids: Sequence[str]) -> None:
        """Call ``remove`` once, with the uids of all the requests."""
        uids = [self._uid(name) for name in request_ids]
        self._claims.removed(self._generator.remove(uids))
        for name in request_ids:
            self._claims.about(self._recorded.removed(name))
        if self._prefix_cache is not None:
            self._prefix_cache.forget(uids)

    def close(self) -> None:
        """Call ``BatchGenerator.close``."""
        self._generator.close()

    def stages(self) -> Mapping[str, Stage]:
        """The stages by the generator's queue, prompt batch and generation batch."""
        held = compat.uids_by_stage(self._generator)
        return {self._ids[uid]: stage for uid, stage in held.items() if uid in self._ids}

    def rows(self) -> Mapping[str, int]:
        """The rows of the generation batch."""
        return {self._name(u): row for row, u in enumerate(compat.decode_rows(self._generator))}

    def cache_bytes(self) -> int | None:
        """The generator's own count."""
        return compat.cache_bytes(self._generator)

    def counted(self) -> Counted | None:
        """The counts of ``BatchGenerator.stats``."""
        return self._counting.counted()

    def layers(self) -> Sequence[CachedLayer]:
        """The layers of the decoding batch."""
        return [
            CachedLayer(compat.nbytes(entry), quantized=False, dtypes=floating(entry))
            for entry in compat.decode_caches(self._generator)
        ]

    def pending(self) -> int:
        """Pending work of the decoding batch, and the tokens kept for its processors."""
        generator = self._generator
        return pending_edges([*compat.decode_caches(generator), *compat.histories(generator)])

    def give_up(self, request_id: str, *, computed: bool) -> KeptCache:
        """The cache of the finishing response."""
        caches, _ = self._finished_caches[request_id]
        self._finished_caches.clear()
        if caches is None:
            raise Unsupported("this mlx-lm's BatchGenerator does not support giving caches back")
        return weigh(request_id, caches, computed=computed)

    def give_up_stored(self) -> KeptCache | None:
        """A cache of the server's store; ``None`` if the store is empty."""
        self._finished_caches.clear()
        stored = self._prefix_cache.shortest() if self._prefix_cache is not None else None
        if stored is None:
            return None
        return weigh("the shortest that is stored", stored, computed=True)

    def extract(self, request_id: str) -> Any:
        """Cache and tokens: of the finishing response, or of a live row by ``extract_cache``."""
        if request_id in self._finished_caches:
            return self._finished_caches[request_id]
        uid = self._uid(request_id)
        cache, tokens = self._generator.extract_cache([uid])[uid]
        self._claims.kept(uid, tokens)
        return cache, tokens

    def reloaded(self, prefix: Any) -> Any:
        """The cache saved to a file and loaded; its tokens are kept, as the file lacks them."""
        caches, tokens = prefix
        return compat.reloaded(caches), tokens

    def probe(self, kind: str) -> ProbeResult:
        """See ``probes``."""
        return probe(self._generator, kind)

    @classmethod
    def probes(cls) -> tuple[str, ...]:
        """See ``probes``."""
        return tuple(PROBES)

    @classmethod
    def accepted(cls) -> Accepted:
        """See ``Engine.accepted``."""
        methods = (getattr(BatchGenerator, name, None) for name in ("__init__", *_INSERTS))
        return {m.__qualname__: parameters_of(m) for m in methods if m is not None}

    @classmethod
    def passed(cls, model: Any, schedule: Schedule) -> Sequence[Passed]:
        """See ``Engine.passed``."""
        recorder = Recorder()
        names = [name for name in _INSERTS if hasattr(BatchGenerator, name)]
        patches = [made(recorder, BatchGenerator, BatchGenerator.__init__.__qualname__)]
        patches += [
            inserted(recorder, BatchGenerator, name, f"BatchGenerator.{name}") for name in names
        ]
        return record(cls, model, schedule, recorder, patches)

    def _own_sampler(self, request: Request) -> RecordedSampler | None:
        """The sampler to insert the request with; ``None`` for the generator's."""
        own = own_sampler(request, self._options)
        found = self._made_sampler(own) if own is not None else None
        chooses = found or self._sampler
        if chooses is not None:
            self._samplers[request.request_id] = chooses
        return found

    def _made_sampler(self, sampler: Sampler) -> RecordedSampler | None:
        # Rows with equal library samplers share one object, so that the engine samples them in one
        # call for the whole batch, which is a different path than row by row.
        if sampler.kind not in ("library", "compared"):
            return recorded(make_sampler(sampler))
        key = repr(sampler)
        if key not in self._shared_samplers and (made := recorded(make_sampler(sampler))):
            self._shared_samplers[key] = made
        return self._shared_samplers[key]

    def _uid(self, request_id: str) -> int:
        return next(uid for uid, name in self._ids.items() if name == request_id)

    def _name(self, uid: int) -> str:
        # An unknown uid is not hidden: the protocol check reports it.
        return self._ids.get(uid, f"unknown uid {uid}")

    def _event(self, response: Any) -> TokenEvent:
        name = self._name(response.uid)
        self._claims.produced(response)
        if response.finish_reason is not None:
            self._finished_caches[name] = (response.prompt_cache, response.all_tokens)
        logprobs = np.array(response.logprobs.astype(mx.float32))  # [vocab]
        reason = response.finish_reason
        return TokenEvent(
            request_id=name,
            token=int(response.token),
            logprobs=logprobs,
            token_logprob=float(logprobs[int(response.token)]),
            finish_reason=FinishReason(reason) if reason is not None else None,
        )


def _pieces(request: Request) -> list[list[int]]:
    """The prompt in the segments of the request, or as one piece."""
    lengths = request.segments or (len(request.prompt),)
    ends = np.cumsum(lengths).tolist()
    return [list(request.prompt[end - n : end]) for n, end in zip(lengths, ends, strict=True)]


_PROMPTS = [[5, 6, 7], [8, 9]]
_UNKNOWN_UID = 1_000_003
_VOCAB = 8


def _insert(**options: Any) -> Callable[[BatchGenerator], object]:
    prompts = options.pop("prompts", _PROMPTS)
    return lambda generator: generator.insert([list(p) for p in prompts], **options)


def _construct(**options: Any) -> Callable[[BatchGenerator], object]:
    return lambda generator: BatchGenerator(generator.model, **options)


def _draw(**options: Any) -> Callable[[BatchGenerator], object]:
    """Call a sampler with these options: its filters reject bad ones only when called."""
    return lambda _: sample_utils.make_sampler(temp=1.0, **options)(mx.zeros((2, _VOCAB)))


PROBES: Mapping[str, Callable[[BatchGenerator], object]] = {
    "mismatched_max_tokens": _insert(max_tokens=[4]),
    "mismatched_samplers": _insert(samplers=[None]),
    "mismatched_processors": _insert(logits_processors=[[], [], []]),
    "mismatched_caches": _insert(caches=[None]),
    "mismatched_all_tokens": _insert(all_tokens=[[], [], []]),
    "empty_prompt": _insert(prompts=[[5, 6, 7], []]),
    "zero_max_tokens": _insert(max_tokens=[4, 0]),
    "negative_max_tokens": _insert(max_tokens=[4, -1]),
    "sampler_top_k_of_all": _draw(top_k=_VOCAB),
    "sampler_top_k_of_half_a_token": _draw(top_k=1.5),
    "sampler_min_p_over_one": _draw(min_p=1.5),
    "sampler_min_p_below_zero": _draw(min_p=-0.5),
    "sampler_min_tokens_zero": _draw(min_p=0.5, min_tokens_to_keep=0),
    "sampler_min_tokens_of_half": _draw(min_p=0.5, min_tokens_to_keep=1.5),
    "sampler_xtc_threshold_over_half": _draw(xtc_probability=0.5, xtc_threshold=0.6),
    "sampler_xtc_threshold_below_zero": _draw(xtc_probability=0.5, xtc_threshold=-0.1),
    "sampler_xtc_probability_over_one": _draw(xtc_probability=1.5),
    "sampler_penalty_below_zero": lambda _: sample_utils.make_logits_processors(
        repetition_penalty=-1.0
    ),
    "unknown_uid": lambda generator: generator.remove([_UNKNOWN_UID]),
    "zero_completion_batch": _construct(completion_batch_size=0, prefill_batch_size=0),
    "negative_prefill_batch": _construct(prefill_batch_size=-1),
    "zero_prefill_step": _construct(prefill_step_size=0),
}


def probe(generator: BatchGenerator, kind: str) -> ProbeResult:
    """Make the invalid call ``kind`` on a working generator; the result has what it changed."""
    with drawing_kept():  # a damaged state has been seen by then
        return watched(kind, lambda: PROBES[kind](generator), lambda: _state(generator))


def _state(generator: BatchGenerator) -> dict[str, Any]:
    drawn = "can be drawn" if can_draw() else "can be drawn no more"
    return digest(generator) | {"random numbers": drawn}
