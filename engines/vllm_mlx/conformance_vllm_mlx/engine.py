"""``vllm_mlx.engine_core.EngineCore`` as an engine of mlx-lm's models.

It is driven as its ``generate_batch_sync`` drives it, a step of its scheduler for each step, so
that a schedule says when requests come and go.
"""

from vllm_mlx.engine_core import EngineConfig, EngineCore
from vllm_mlx.memory_cache import MemoryAwarePrefixCache, MemoryCacheConfig
from vllm_mlx.request import Request
from vllm_mlx.scheduler import SchedulerConfig

from conformance import Capability, Engine, FinishReason, PrefixReuse, StepOutput, TokenEvent
from conformance.core.schedule import Stage, own_processors, own_sampler
from conformance.plugins.mlx_lm.compat import uids_by_stage
from conformance.plugins.mlx_lm.sampling import make_processors
from conformance_vllm_mlx.errors import CaughtErrors
from conformance_vllm_mlx.parameters import sampling_params
from conformance_vllm_mlx.probes import PROBES, probe
from conformance_vllm_mlx.recording import Recorder, chooser
from conformance_vllm_mlx.streams import Streams
from conformance_vllm_mlx.tokenizer import WordTokenizer


class VllmMlxEngine(Engine):
    """``EngineCore`` with its memory-aware prefix cache, its default.

    Not ``SAMPLERS``: all rows are sampled as the first one asked (vllm_mlx/scheduler.py:1771).
    """

    name = "vllm_mlx"
    library = "mlx_lm"
    packages = ("vllm-mlx",)
    capabilities = frozenset(
        {
            Capability.FORCED,
            Capability.LOGPROBS,
            Capability.STAGES,
            Capability.TOGETHER,
            Capability.CHUNKED,
            Capability.LATE_JOIN,
            Capability.SLOTS,
            Capability.CANCEL,
            Capability.PROCESSORS,
            Capability.PREFIX_CACHING,
            Capability.PROBES,
            Capability.THREADS,
        }
    )
    prefix_reuse = PrefixReuse(on_completion=True)

    def __init__(self, model, options):
        self._options = options
        config = EngineConfig(scheduler_config=self._config())
        self._core = EngineCore(model, WordTokenizer(), config)
        self.scheduler = self._core.scheduler
        if options.prefix_caching is not None:
            self.keep_short_prefixes(model, options.prefix_caching)
        self._recorders = {}  # by request
        self._counts = {}  # of tokens that came, by request
        self._done = {}  # tokens of each prompt that have been processed
        self._processed = {}  # of them, since the step began
        self._streams = Streams()
        self._errors = CaughtErrors()
        self._watch_prefill()

    def _config(self):
        options, caching = self._options, self._options.prefix_caching
        return SchedulerConfig(
            prefill_batch_size=options.prefill_batch_size,
            completion_batch_size=options.completion_batch_size,
            prefill_step_size=options.prefill_step_size,
            max_kv_size=options.max_kv_size or 0,
            enable_prefix_cache=caching is not None,
            **(self.cache_options(caching) if caching is not None else {}),
        )

    @classmethod
    def cache_options(cls, caching):
        """The scheduler's options for the prefix cache."""
        return {"use_memory_aware_cache": True}

    def keep_short_prefixes(self, model, caching):
        """The cache that the scheduler makes, but for prompts as short as ours.

        The scheduler has no options for these; by default prefixes of less than 128 tokens are not
        kept (vllm_mlx/memory_cache.py:228).
        """
        config = MemoryCacheConfig(min_prefix_tokens=1, max_entries=caching.snapshots)
        self.scheduler.memory_aware_cache = MemoryAwarePrefixCache(model, config)

    def _watch_prefill(self):
        """The scheduler drops what its generator says of prompts; here it is kept."""
        create = self.scheduler._create_batch_generator

        def created(params):
            generator = create(params)
            following = generator.next

            def watched():
                prompts, responses = following()
                for response in prompts:
                    self._note(self.scheduler.uid_to_request_id[response.uid], response.progress[0])
                return prompts, responses

            generator.next = watched
            return generator

        self.scheduler._create_batch_generator = created

    def _note(self, name, done):
        more = done - self._done.get(name, 0)
        self._processed[name] = self._processed.get(name, 0) + more
        self._done[name] = done

    def insert(self, submissions):
        """A call of ``add_request`` for each."""
        for submission in submissions:
            request = submission.request
            name = request.request_id
            sampler = own_sampler(request, self._options)
            self._recorders[name] = Recorder(chooser(submission, sampler))
            processors = make_processors(own_processors(request, self._options))
            params = sampling_params(request, sampler, [*processors, self._recorders[name]])
            self.scheduler.add_request(Request(name, list(request.prompt), params))
            self._counts[name] = 0

    def step(self):
        """One ``step`` of the scheduler."""
        self._streams.bind()
        self._processed = {}
        with self._errors:
            output = self.scheduler.step()
        self._errors.check(output.outputs)
        started = {name: self.scheduler.requests[name] for name in output.scheduled_request_ids}
        reused = {name: r.cached_tokens for name, r in started.items() if r.cached_tokens}
        events = tuple(self._event(o, token) for o in output.outputs for token in o.new_token_ids)
        for name in output.finished_request_ids:
            self.scheduler.remove_finished_request(name)
        return StepOutput(events, dict(self._processed), reused=reused)

    def _event(self, output, token):
        name = output.request_id
        logprobs = self._recorders[name].logprobs(self._counts[name])
        self._counts[name] += 1
        reason = FinishReason(output.finish_reason) if output.finished else None
        return TokenEvent(name, int(token), logprobs, float(logprobs[int(token)]), reason)

    def remove(self, request_ids):
        """``abort_request``, which the next step carries out."""
        for name in request_ids:
            self.scheduler.abort_request(name)

    def close(self):
        """``EngineCore.close``."""
        self._core.close()
        self._streams.restore()

    def stages(self):
        """From the scheduler's queue and the generator's batches, but for those to be aborted."""
        found = {request.request_id: Stage.QUEUED for request in self.scheduler.waiting}
        generator, names = self.scheduler.batch_generator, self.scheduler.uid_to_request_id
        if generator is not None:
            by_uid = uids_by_stage(generator)
            found |= {names[uid]: stage for uid, stage in by_uid.items() if uid in names}
        return {
            n: stage for n, stage in found.items() if n not in self.scheduler._pending_abort_ids
        }

    def probe(self, kind):
        """See ``probes``."""
        return probe(self.scheduler, kind)

    @classmethod
    def probes(cls):
        """See ``probes``."""
        return tuple(PROBES)


class PagedEngine(VllmMlxEngine):
    """``EngineCore`` with its paged prefix cache."""

    name = "vllm_mlx_paged"

    @classmethod
    def cache_options(cls, caching):
        """Blocks as many and as long as the options say; by default 1,000 of 64 tokens."""
        return {
            "use_paged_cache": True,
            "paged_cache_block_size": caching.block_size,
            "max_cache_blocks": caching.blocks,
        }

    def keep_short_prefixes(self, model, caching):
        """It keeps all."""
