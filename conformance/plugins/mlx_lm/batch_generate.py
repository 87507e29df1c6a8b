"""mlx-lm's public function ``batch_generate`` as an engine: one call for all requests."""

from __future__ import annotations

import contextlib
import dataclasses
import io
import sys
from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any, ClassVar

from mlx_lm.generate import BatchGenerator, BatchResponse, batch_generate

from conformance.backend.recorded_sampler import recorded
from conformance.core.accepted_fields import Accepted, Passed, Recorder, parameters_of
from conformance.core.counted import Clock, Counted
from conformance.core.engine import Capability, Engine, Submission
from conformance.core.engine_options import EngineOptions
from conformance.core.schedule import Schedule, Stage
from conformance.core.trace import Claim, FinishReason, StepOutput, TokenEvent
from conformance.plugins.mlx_lm import compat
from conformance.plugins.mlx_lm.claims import counted
from conformance.plugins.mlx_lm.legacy import accepted
from conformance.plugins.mlx_lm.sampling import make_processors, make_sampler
from conformance.plugins.recorded_calls import called, record

# Results that later releases can return, by the argument that asks for them.
_RESULTS = {
    "return_prompt_caches": "caches",
    "return_token_ids": "token_ids",
    "return_logprobs": "logprobs",
}
# The function uses a tokenizer only for its stop tokens and to decode its output.
_TOKENIZER = SimpleNamespace(eos_token_ids=[], decode=lambda tokens: " ".join(map(str, tokens)))


_PLACE = "batch_generate"


class MlxLmBatchGenerate(Engine):
    """One call of the function is one step, with the logprobs of chosen tokens and no stages."""

    name: ClassVar[str] = "mlx_lm_batch_generate"
    library: ClassVar[str] = "mlx_lm"
    capabilities: ClassVar[frozenset[Capability]] = frozenset(
        {
            Capability.TOGETHER,
            Capability.CHUNKED,
            Capability.SLOTS,
            Capability.PREFIX,
            Capability.SAVED,
            Capability.THREADS,
            Capability.DEFAULTS,
            Capability.METERED,
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
        """Queue the requests until the next step."""
        self._queued.extend(submissions)

    def step(self) -> StepOutput:
        """One call of ``batch_generate`` with all queued requests."""
        submissions, self._queued = self._queued, []
        if not submissions:
            return StepOutput()
        requests = [s.request for s in submissions]
        caches = [s.prefix for s in submissions]
        claims = () if self._caches else self._unasked()
        sampler = recorded(make_sampler(self._options.sampler))
        response: Any
        with self._clock.measured(), contextlib.redirect_stdout(io.StringIO()) as printed:
            response = _call(
                self._model,
                [list(r.prompt) for r in requests],
                prompt_caches=caches if any(c is not None for c in caches) else None,
                max_tokens=_number_or_list([r.max_tokens for r in requests]),
                prefill_step_size=self._options.prefill_step_size,
                prefill_batch_size=self._options.prefill_batch_size,
                completion_batch_size=self._options.completion_batch_size,
                max_kv_size=self._options.max_kv_size,
                **compat.defaults(sampler, make_processors(self._options.processors)),
            )
        before, self._stats = self._stats, response.stats
        if hasattr(before, "__iadd__"):
            self._stats += before
        events = []
        for request, tokens, logprobs in zip(requests, *_outputs(response), strict=True):
            last = len(tokens) - 1
            events += [
                TokenEvent(
                    request_id=request.request_id,
                    token=int(token),
                    token_logprob=None if logprob is None else float(logprob),
                    finish_reason=FinishReason.LENGTH if index == last else None,
                )
                for index, (token, logprob) in enumerate(zip(tokens, logprobs, strict=True))
            ]
        given = getattr(response, "caches", None) or [None] * len(requests)
        for request, cache in zip(requests, given, strict=True):
            self._caches[request.request_id] = cache
        claims += _beside(response, printed.getvalue())
        if sampler is not None:
            claims += tuple(sampler.claim(e) for e in events if e.token_logprob is not None)
        processed = {r.request_id: len(r.prompt) for r in requests}
        return StepOutput(tuple(events), processed, claims=claims)

    def _unasked(self) -> tuple[Claim, ...]:
        """The claim that a call returns no optional result that it was not asked for."""
        if not compat.prefills_in_pieces():
            return ()
        response: Any
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            response = batch_generate(self._model, _TOKENIZER, [])
        names = ("caches", "token_ids", "logprobs")
        given = [name for name in names if getattr(response, name, None) is not None]
        given += ["text on the terminal"] if printed.getvalue() else []
        return (_claim("results that were not asked for", ", ".join(given), ""),)

    def remove(self, request_ids: Sequence[str]) -> None:
        """Remove queued requests; the function cannot be interrupted once it is called."""
        self._queued = [s for s in self._queued if s.request.request_id not in request_ids]

    def close(self) -> None:
        """Do nothing: the function leaves nothing open."""
        self._caches.clear()

    def counted(self) -> Counted | None:
        """The counts of all calls."""
        return counted(self._stats, self._clock.seconds)

    def stages(self) -> Mapping[str, Stage]:
        """All requests are queued until the call."""
        return {s.request.request_id: Stage.QUEUED for s in self._queued}

    def extract(self, request_id: str) -> Any:
        """The cache that the call returned for that request."""
        return self._caches[request_id]

    def reloaded(self, prefix: Any) -> Any:
        """The cache after it was saved to a file and loaded."""
        return compat.reloaded(prefix)

    @classmethod
    def accepted(cls) -> Accepted:
        """See ``Engine.accepted``; the function passes other arguments to its generator."""
        passed_on = parameters_of(BatchGenerator.__init__)
        return {_PLACE: tuple(dict.fromkeys((*parameters_of(batch_generate), *passed_on)))}

    @classmethod
    def passed(cls, model: Any, schedule: Schedule) -> Sequence[Passed]:
        """See ``Engine.passed``."""
        recorder = Recorder()
        patches = [called(recorder, sys.modules[__name__], _PLACE, cls.accepted()[_PLACE])]
        return record(cls, model, schedule, recorder, patches, stepping=True)


def _call(model: Any, prompts: list[list[int]], **wanted: Any) -> Any:
    """One call of the function that asks for all results that this release can return.

    Raises:
        Unsupported: this release does not take one of the arguments.
    """
    fields = {field.name for field in dataclasses.fields(BatchResponse)}
    results: dict[str, Any] = {n: True for n, field in _RESULTS.items() if field in fields}
    names = {"max_tokens", *(("prompt_caches",) if "caches" in fields else ())}
    own = {n: wanted[n] for n in names}
    passed_on = accepted(BatchGenerator, {n: v for n, v in wanted.items() if n not in names})
    return batch_generate(model, _TOKENIZER, prompts, **own, **results, **passed_on)


def _outputs(response: Any) -> tuple[list[list[int]], list[list[Any]]]:
    """Tokens and their logprobs; up to 0.31.3 the tokens of the texts, without logprobs."""
    if hasattr(response, "token_ids"):
        return response.token_ids, response.logprobs
    tokens = [[int(word) for word in text.split()] for text in response.texts]
    return tokens, [[None] * len(row) for row in tokens]


def _number_or_list(numbers: list[int]) -> int | list[int]:
    """One number if it is the same for all requests: the function takes both."""
    return numbers[0] if len(set(numbers)) == 1 else numbers


def _beside(response: Any, printed: str) -> tuple[Claim, ...]:
    """Claims about the other contents of a response than tokens and caches."""
    texts = [_TOKENIZER.decode(tokens) for tokens in _outputs(response)[0]]
    return (
        _claim("texts", str(response.texts), str(texts)),
        _claim("text on the terminal", printed, ""),
        _claim("statistics", "none" if response.stats is None else "some", "some"),
    )


def _claim(what: str, said: str, found: str) -> Claim:
    return Claim(what, said or "none", found or "none", said == found)
