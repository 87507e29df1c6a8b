"""Turns a request's plain sampler and processor descriptions into mlx-lm's callables."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mlx.core as mx
from mlx_lm import sample_utils

from conformance.errors import ScheduleError
from conformance.schedule import Processor, Sampler

SamplerFn = Callable[[mx.array], mx.array]
ProcessorFn = Callable[[mx.array, mx.array], mx.array]


class ForcedSampler:
    """Returns given tokens, one a call, whatever the logprobs are.

    Engines compute one step ahead, so a call past the last token repeats it.
    """

    def __init__(self, tokens: tuple[int, ...]) -> None:
        self._tokens = tokens
        self._calls = 0

    def __call__(self, logprobs: mx.array) -> mx.array:
        """``[rows, vocab]`` in, ``[rows]`` out."""
        index = min(self._calls, len(self._tokens) - 1)
        self._calls += 1
        return mx.full((logprobs.shape[0],), self._tokens[index], mx.uint32)


class SeededSampler:
    """Samples with a random stream of its own, so that a row draws the same in every batch."""

    def __init__(self, temperature: float, seed: int) -> None:
        self._scale = 1.0 / temperature
        self._seed = seed
        self._calls = 0

    def __call__(self, logprobs: mx.array) -> mx.array:
        """``[rows, vocab]`` in, ``[rows]`` out."""
        key = mx.random.key(self._seed * 1_000_003 + self._calls)
        self._calls += 1
        return mx.random.categorical(logprobs.astype(mx.float32) * self._scale, key=key)


def make_sampler(sampler: Sampler | None) -> SamplerFn | None:
    """The callable for ``sampler``; a stateful one is made anew by each call.

    Raises:
        ScheduleError: there is no such kind of sampler.
    """
    if sampler is None:
        return None
    if sampler.kind == "seeded":
        return SeededSampler(float(sampler.args["temperature"]), int(sampler.args["seed"]))
    if sampler.kind == "library":
        arguments: dict[str, Any] = dict(sampler.args)
        made: SamplerFn = sample_utils.make_sampler(**arguments)
        return made
    raise ScheduleError(f"mlx_lm: no sampler of kind {sampler.kind!r}; there are seeded, library")


def make_processors(processors: tuple[Processor, ...]) -> list[ProcessorFn]:
    """The callables for ``processors``, made by the library.

    Raises:
        ScheduleError: there is no such kind of processor.
    """
    made: list[ProcessorFn] = []
    for processor in processors:
        if processor.kind != "library":
            raise ScheduleError(
                f"mlx_lm: no processor of kind {processor.kind!r}; there is library"
            )
        arguments = dict(processor.args)
        if "logit_bias" in arguments:  # JSON has no integer keys
            arguments["logit_bias"] = {int(k): v for k, v in arguments["logit_bias"].items()}
        made += sample_utils.make_logits_processors(**arguments)
    return made
