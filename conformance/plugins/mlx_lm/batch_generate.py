"""mlx-lm's public function ``batch_generate`` as an engine: one call for all requests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any, ClassVar

from mlx_lm.generate import batch_generate

from conformance.core.counted import Clock, Counted
from conformance.core.engine import Capability, Engine, Submission
from conformance.core.engine_options import EngineOptions
from conformance.core.schedule import Stage
from conformance.core.trace import FinishReason, StepOutput, TokenEvent
from conformance.plugins.mlx_lm import compat
from conformance.plugins.mlx_lm.counting import counted

# The function uses a tokenizer only for its stop tokens and to decode its output.
_TOKENIZER = SimpleNamespace(eos_token_ids=[], decode=lambda tokens: " ".join(map(str, tokens)))


class MlxLmBatchGenerate(Engine):
    """One call of the function is one step. It returns the logprobs of chosen tokens, no stages."""

    name: ClassVar[str] = "mlx_lm_batch_generate"
    library: ClassVar[str] = "mlx_lm"
    capabilities: ClassVar[frozenset[Capability]] = frozenset(
        {
            Capability.TOGETHER,
            Capability.CHUNKED,
            Capability.SLOTS,
            Capability.PREFIX,
            Capability.THREADS,
            Capability.DEFAULTS,
        }
    )

    def __init__(self, model: Any, options: EngineOptions) -> None:
        self._model = model
        self._options = options
        self._queued: list[Submission] = []
        self._caches: dict[str, Any] = {}
        self._clock = Clock()
        self._stats: Any = None

    def insert(self, submissions: Sequence[Submission]) -> None:
        """Queued until the next step."""
        self._queued.extend(submissions)

    def step(self) -> StepOutput:
        """One call of ``batch_generate`` with all queued requests."""
        submissions, self._queued = self._queued, []
        if not submissions:
            return StepOutput()
        requests = [s.request for s in submissions]
        caches = [s.prefix for s in submissions]
        response: Any
        with self._clock.measured():
            response = batch_generate(
                self._model,
                _TOKENIZER,
                [list(r.prompt) for r in requests],
                prompt_caches=caches if any(c is not None for c in caches) else None,
                max_tokens=[r.max_tokens for r in requests],
                return_prompt_caches=True,
                return_token_ids=True,
                return_logprobs=True,
                prefill_step_size=self._options.prefill_step_size,
                prefill_batch_size=self._options.prefill_batch_size,
                completion_batch_size=self._options.completion_batch_size,
                max_kv_size=self._options.max_kv_size,
                **compat.defaults(self._options),
            )
        before, self._stats = self._stats, response.stats
        if hasattr(before, "__iadd__"):
            self._stats += before
        events = []
        outputs = zip(requests, response.token_ids, response.logprobs, strict=True)
        for request, tokens, logprobs in outputs:
            last = len(tokens) - 1
            events += [
                TokenEvent(
                    request_id=request.request_id,
                    token=int(token),
                    token_logprob=float(logprob),
                    finish_reason=FinishReason.LENGTH if index == last else None,
                )
                for index, (token, logprob) in enumerate(zip(tokens, logprobs, strict=True))
            ]
        for request, cache in zip(requests, response.caches, strict=True):
            self._caches[request.request_id] = cache
        return StepOutput(tuple(events), {r.request_id: len(r.prompt) for r in requests})

    def remove(self, request_ids: Sequence[str]) -> None:
        """Only before the call: the function cannot be interrupted."""
        self._queued = [s for s in self._queued if s.request.request_id not in request_ids]

    def close(self) -> None:
        """Nothing is left after the call."""
        self._caches.clear()

    def counted(self) -> Counted | None:
        """Of all calls."""
        return counted(self._stats, self._clock.seconds)

    def stages(self) -> Mapping[str, Stage]:
        """All requests before the call are queued."""
        return {s.request.request_id: Stage.QUEUED for s in self._queued}

    def extract(self, request_id: str) -> Any:
        """The cache that the call returned for that request."""
        return self._caches[request_id]
