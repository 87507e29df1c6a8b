"""The oracles of one loaded model, each made once: single streams, stateless checks, noise."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np

from conformance.core import numerics
from conformance.core.engine_options import EngineOptions
from conformance.core.library import Library, Solo
from conformance.core.numerics import Envelope
from conformance.core.phases import ForwardCall
from conformance.core.schedule import Request, Schedule
from conformance.core.trace import FinishReason, Stream
from conformance.reference.noise import FEW_RUNS, PERTURBED_RUNS, THOROUGH_RUNS, Noise
from conformance.reference.store import OracleCache

# Minimal steps of a single stream, so that the next scenario need not extend it.
MIN_STEPS = 7
# Fewest steps in which noise is measured, if a stream has as many.
_LEAST_NOISE = 16
# The stateless oracle takes one whole pass per token: only short prompts and few tokens.
STATELESS_PROMPT = 16
STATELESS_STEPS = 4


@dataclass(frozen=True)
class OracleCheck:
    """The single stream compared with the stateless pass, over one prompt."""

    deviation: numerics.Deviation
    envelope: Envelope


class Oracle:
    """The oracle's output for any request of a schedule, and its noise.

    Args:
        cache: results of earlier runs: single streams by request and number of steps, noise by
            request, seeds and number of steps. Results are the same with and without it.
        meter: records the model's calls.

    Attributes:
        dtype: the model's.
        least: the fewest steps of the single stream of a plain request.
        calls: how many model calls single streams and noise took in this run.
    """

    def __init__(
        self,
        library: Library,
        model: Any,
        dtype: str,
        stateless_steps: int = STATELESS_STEPS,
        *,
        cache: OracleCache | None = None,
        meter: Sequence[ForwardCall] = (),
    ) -> None:
        self.dtype = dtype
        self.least = MIN_STEPS
        self._library = library
        self._model = model
        self._stateless_steps = stateless_steps
        self._stored, envelopes = cache or OracleCache({}, {})
        self._streams: dict[Any, Stream] = {}
        self._noise = Noise(library, model, dtype, envelopes)
        self._meter = meter
        self.calls = 0
        self._checks: dict[Any, OracleCheck | None] = {}
        self._dtypes: dict[Any, tuple[tuple[str, ...], ...]] = {}
        self._apart: dict[Any, numerics.Deviation] = {}

    def solo(self, request: Request, options: EngineOptions, schedule: Schedule | None) -> Stream:
        """The single stream of ``request``, with stop sequences and ``max_tokens`` applied.

        The prompt is processed in pieces of the same size as in the batch: other pieces round
        differently, and are cached separately.
        """
        key = self._key(request, options, schedule)
        stream = self._streams.get(key)
        known = len(stream.tokens) if stream is not None else 0
        own_limit = self._library.own_limits and known != request.max_tokens
        short = stream is not None and known < request.max_tokens and not _stopped(stream, request)
        if stream is None or short or own_limit:
            # Only plain requests are in several scenarios, with different max_tokens.
            own = request.sampler or request.processors or request.continues or options.kv
            shared = not own
            least = self.least if shared and not self._library.own_limits else 0
            steps = max(request.max_tokens, least)
            stream = self._stored.get((key, steps))
            if stream is None:
                with self._counted():
                    stream = self._decode(request, options, schedule, steps).stream
                self._stored[key, steps] = stream
            self._streams[key] = stream
        return cut(stream, request)

    def dtypes(self, request: Request, options: EngineOptions) -> tuple[tuple[str, ...], ...]:
        """The floating dtypes of each layer's cache in the single stream of such a request.

        They are looked up once for text and once for each kind of media, after two tokens.
        """
        key = (options.max_kv_size, *sorted({media.kind for media in request.media}))
        if key not in self._dtypes:
            from conformance.backend.cache_entries import floating  # noqa: PLC0415 - imports mlx

            with self._counted():
                cache = self._decode(request, options, None, 2).cache
            self._dtypes[key] = tuple(floating(entry) for entry in cache)
        return self._dtypes[key]

    def envelope(
        self,
        request: Request,
        options: EngineOptions,
        schedule: Schedule | None,
        *,
        runs: int = PERTURBED_RUNS,
        steps: int | None = None,
    ) -> Envelope:
        """The noise at each step of ``request``'s single stream.

        Args:
            runs: the number of perturbed runs; a larger number includes the runs of a smaller one.
            steps: only so many of the first steps are needed; default: all.

        Raises:
            VoidNoiseError: the perturbation moved nothing.
        """
        key = self._key(request, options, schedule)

        def history() -> Request:
            prompt = self._history(request, options, schedule)
            return msgspec.structs.replace(request, prompt=prompt)

        stream = self._streams[key]
        if steps is not None and (least := _rounded(steps)) < len(stream.tokens):
            stream = _first(stream, least, FinishReason.LENGTH)
        with self._counted():
            return self._noise.cached(key, history, options, stream, runs=runs)

    def noise_along(
        self,
        request: Request,
        options: EngineOptions,
        stream: Stream,
        *,
        runs: int = PERTURBED_RUNS,
        encoders: bool = False,
    ) -> Envelope:
        """The noise at tokens that ``request`` was fed and need not choose itself; not cached.

        See ``Noise.along``.

        Raises:
            VoidNoiseError: the perturbation moved nothing.
        """
        return self._noise.along(request, options, stream, runs=runs, encoders=encoders)

    def wider(
        self,
        request: Request,
        options: EngineOptions,
        schedule: Schedule | None,
        *,
        steps: int | None = None,
    ) -> tuple[Callable[[], Envelope], ...]:
        """The noise of ``request`` from few runs to many, each measured when it is called."""
        return tuple(
            functools.partial(self.envelope, request, options, schedule, runs=runs, steps=steps)
            for runs in (FEW_RUNS, PERTURBED_RUNS, THOROUGH_RUNS)
        )

    def floor_envelope(self, stream: Stream, options: EngineOptions) -> Envelope:
        """The smallest noise to assume for ``stream``; free, and enough if nothing moved."""
        return self._noise.floor(stream, options)

    def check_stateless(self, request: Request, options: EngineOptions) -> OracleCheck | None:
        """Compare the single stream with the pass without a cache; ``None`` for long prompts."""
        if len(request.prompt) > STATELESS_PROMPT or request.continues or request.processors:
            return None
        key = (request.prompt, request.media)
        if key not in self._checks:
            stream = self.solo(request, options, None)
            assert stream.logprobs is not None
            rows = self._stateless_rows(request, stream)
            got, want = np.stack(rows), stream.logprobs[: len(rows)]
            deviation, noise = numerics.settle(
                lambda noise: numerics.deviation(got, want, noise),
                self.floor_envelope(stream, options),
                self.wider(request, options, None),
            )
            self._checks[key] = OracleCheck(deviation, noise)
        return self._checks[key]

    def _stateless_rows(self, request: Request, stream: Stream) -> list[np.ndarray]:
        """The first steps without a cache, as many as the library can compute in this way."""
        rows: list[np.ndarray] = []
        for index in range(min(self._stateless_steps, len(stream.tokens))):
            row = self._library.stateless(self._model, request, stream.tokens[:index])
            if row is None:
                break
            rows.append(row)
        return rows

    @property
    def doubtful(self) -> bool:
        """Whether any stateless check so far disagreed with the single stream."""
        checks = (check for check in self._checks.values() if check is not None)
        return any(not check.deviation.within_noise for check in checks)

    def apart(self, request: Request, other: Request) -> numerics.Deviation:
        """How far logprobs of ``other`` are from ``request``'s at its tokens, over the floor."""
        options = EngineOptions()
        key = (self._key(request, options, None), self._key(other, options, None))
        if key not in self._apart:
            stream = self.solo(request, options, None)
            assert stream.logprobs is not None
            with self._counted():
                forced = self._library.teacher_forced
                got = forced(self._model, other, stream.tokens, options=options)
            noise = self.floor_envelope(stream, options)
            self._apart[key] = numerics.deviation(got, stream.logprobs, noise)
        return self._apart[key]

    def again(self, request: Request, options: EngineOptions, *, steps: int) -> Stream:
        """The first ``steps`` steps of the single stream, repeated from the prompt on."""
        return self._library.again(self._model, request, options=options, steps=steps)

    def loaded(
        self, request: Request, options: EngineOptions, schedule: Schedule, *, steps: int
    ) -> Stream | None:
        """The first ``steps`` steps, continued from a cache that was saved and loaded.

        ``None`` if the library saves no caches.
        """
        prefix = self._library.reloaded(self._prefix(request, options, schedule))
        if prefix is None:
            return None
        return self._library.single_stream(
            self._model, request, options=options, steps=steps, prefix=prefix
        ).stream

    @contextlib.contextmanager
    def _counted(self) -> Iterator[None]:
        """Add the model's calls inside the block to ``calls``."""
        before, known = len(self._meter), self.calls
        try:
            yield
        finally:  # blocks may be nested
            self.calls = known + len(self._meter) - before

    def _decode(
        self, request: Request, options: EngineOptions, schedule: Schedule | None, steps: int
    ) -> Solo:
        prefix = None
        if request.continues is not None:
            assert schedule is not None
            prefix = self._prefix(request, options, schedule)
        return self._library.single_stream(
            self._model,
            request,
            options=options,
            steps=steps,
            prefix=prefix,
        )

    def _prefix(self, request: Request, options: EngineOptions, schedule: Schedule) -> Any:
        """The cache that the request continues."""
        assert request.continues is not None
        source = schedule.request(request.continues.request_id)
        taken = request.continues.after
        if taken is None:
            taken = len(self.solo(source, options, schedule).tokens)
        return self._decode(source, options, schedule, taken).cache

    def _history(
        self, request: Request, options: EngineOptions, schedule: Schedule | None
    ) -> tuple[int, ...]:
        """All tokens before the first one that ``request`` produces."""
        if request.continues is None:
            return request.prompt
        assert schedule is not None
        source = schedule.request(request.continues.request_id)
        produced = self.solo(source, options, schedule).tokens[: request.continues.after]
        return self._history(source, options, schedule) + produced + request.prompt

    @staticmethod
    def _key(request: Request, options: EngineOptions, schedule: Schedule | None) -> Any:
        """Requests that must give the same stream have the same key."""
        # All but the last token are cut into pieces: a larger piece size cuts nothing.
        size = min(options.prefill_step_size, max(len(request.prompt) - 1, 1))
        plain = msgspec.structs.replace(request, request_id="", max_tokens=1, stop=(), asked=None)
        # A server that is its own oracle distinguishes a system message from the rest of a prompt.
        system = request.asked.system if request.asked is not None else 0
        source = None
        if request.continues is not None and schedule is not None:
            before = schedule.request(request.continues.request_id)
            plain = msgspec.structs.replace(plain, continues=None)
            # The length of a cache taken at the end depends on what ended the request.
            end = request.continues.after or (before.max_tokens, before.stop)
            source = (Oracle._key(before, options, schedule), end)
        key = (msgspec.json.encode(plain), size, options.max_kv_size, options.kv, source)
        return (*key, system) if system else key


def cut(stream: Stream, request: Request) -> Stream:
    """The stream as a caller gets it: ended by a stop sequence or by ``max_tokens``."""
    tokens = stream.tokens[: request.max_tokens]
    for end in range(1, len(tokens) + 1):
        if any(tokens[max(0, end - len(s)) : end] == s for s in request.stop if s):
            return _first(stream, end, FinishReason.STOP)
    return _first(stream, len(tokens), FinishReason.LENGTH)


def _stopped(stream: Stream, request: Request) -> bool:
    return cut(stream, request).finish_reason is FinishReason.STOP


def _rounded(steps: int) -> int:
    """A power of two: rows that differ soon need little noise, and few lengths are measured."""
    return max(_LEAST_NOISE, 1 << (steps - 1).bit_length())


def _first(stream: Stream, count: int, reason: FinishReason) -> Stream:
    assert stream.logprobs is not None
    return Stream(stream.tokens[:count], stream.logprobs[:count], None, reason)
