"""How far rounding may move a single stream: as many perturbed runs of a model as needed."""

from __future__ import annotations

import functools
from collections.abc import Callable, Hashable, MutableMapping
from typing import Any

import numpy as np

from conformance.core import numerics
from conformance.core.engine_options import EngineOptions
from conformance.core.errors import VoidNoiseError
from conformance.core.library import Library
from conformance.core.numerics import Envelope
from conformance.core.schedule import Request
from conformance.core.trace import Stream

# Perturbed runs per envelope. Most differences are within the noise of two runs.
FEW_RUNS = 2
PERTURBED_RUNS = 8
# Runs of a thorough envelope. A choice of experts that rounding flips now and then moves the
# logprobs by nats; if it flips in one run of five, eight runs miss it one time in six.
THOROUGH_RUNS = 64
# The size of the perturbation in units in the last place.
ULPS = {"float32": 2.0, "float16": 1.0, "bfloat16": 1.0}
# Quantization is a step function: rounding rarely flips a code, but then moves the logprobs
# by much. A larger perturbation makes flips as common in few runs as they are in many requests.
QUANTIZED_ULPS = {"float32": 32.0, "float16": 2.0, "bfloat16": 1.0}
# ... and a batch adds up codes with other kernels than a single stream.
QUANTIZED_FLOOR = 8.0


class Noise:
    """Measures the noise of one loaded model's streams.

    Args:
        stored: the envelopes of earlier runs, each of some seeds.
    """

    def __init__(
        self,
        library: Library,
        model: Any,
        dtype: str,
        stored: MutableMapping[Any, Envelope],
    ) -> None:
        self._library = library
        self._model = model
        self._dtype = dtype
        self._stored = stored
        self._cache: dict[Any, Envelope] = {}

    def floor(self, stream: Stream, options: EngineOptions) -> Envelope:
        """The smallest noise to assume for ``stream``; free, and enough if nothing moved."""
        return numerics.flat_envelope(len(stream.tokens), self._level(stream, options))

    def along(
        self,
        request: Request,
        options: EngineOptions,
        stream: Stream,
        *,
        runs: int,
        encoders: bool = False,
    ) -> Envelope:
        """The noise at ``stream``'s tokens, which ``request`` need not choose itself; not cached.

        Args:
            encoders: perturb the encoders of images and sound, too.

        Raises:
            VoidNoiseError: the perturbation moved nothing, or gave NaN.
        """
        return self._measure(request, options, stream, range(runs), encoders=encoders)

    def cached(
        self,
        key: Hashable,
        history: Callable[[], Request],
        options: EngineOptions,
        stream: Stream,
        *,
        runs: int,
    ) -> Envelope:
        """The noise of a stream from ``runs`` runs, including earlier ones.

        Args:
            key: the stream's key.
            history: makes the request whose prompt is all tokens before the stream.

        Raises:
            VoidNoiseError: the perturbation moved nothing, or gave NaN.
        """
        steps = len(stream.tokens)
        found = self._lookup(key, runs, steps)
        if found is None:
            fewer, seeds = self._narrower(key, runs, steps)
            name = (key, seeds.start, seeds.stop, steps)
            found = self._stored.get(name)
            if found is None:
                found = self._measure(history(), options, stream, seeds)
                self._stored[name] = found
            found = fewer.wider_by(found) if fewer is not None else found
            self._cache[key, runs] = found
        return found

    def _lookup(self, key: Hashable, runs: int, steps: int) -> Envelope | None:
        found = self._cache.get((key, runs))
        return found if found is not None and len(found.top) >= steps else None

    def _narrower(self, key: Hashable, runs: int, steps: int) -> tuple[Envelope | None, range]:
        """The envelope of fewer runs over all steps, and the seeds of the runs that are missing."""
        for count in (PERTURBED_RUNS, FEW_RUNS):
            known = self._lookup(key, count, steps) if count < runs else None
            if known is not None:
                return known, range(count, runs)
        return None, range(runs)

    def _measure(
        self,
        request: Request,
        options: EngineOptions,
        stream: Stream,
        seeds: range,
        *,
        encoders: bool = False,
    ) -> Envelope:
        run = functools.partial(
            self._library.teacher_forced, self._model, request, stream.tokens, options=options
        )
        base = run()
        ulps = (ULPS if options.kv is None else QUANTIZED_ULPS)[self._dtype]

        def moved(seed: int) -> np.ndarray:
            if not encoders:
                return run(ulps=ulps, seed=seed)
            with self._library.encoders_perturbed(self._model, ulps=ulps, seed=seed):
                return run(ulps=ulps, seed=seed)

        runs = np.stack([moved(seed) for seed in seeds])
        if np.array_equal(runs, np.broadcast_to(base, runs.shape)):
            raise VoidNoiseError(
                "the noise measurement moved no logprob: the model's layers were not reached"
            )
        if np.isnan(runs).any() and not np.isnan(base).any():
            raise VoidNoiseError(
                "the noise measurement gave NaN: a perturbation of one unit in the last place "
                "takes the model out of the range of its dtype"
            )
        level = self._level(stream, options)
        few = seeds.stop < PERTURBED_RUNS
        return numerics.envelope_of(runs, base, floor=level, few=few)

    def _level(self, stream: Stream, options: EngineOptions) -> float:
        assert stream.logprobs is not None
        level = numerics.floor(self._dtype, stream.logprobs)
        return level if options.kv is None else level * QUANTIZED_FLOOR
