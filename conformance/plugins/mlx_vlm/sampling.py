"""Sampling in mlx-vlm: samplers, logits processors, forced tokens and stop tokens."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from types import SimpleNamespace
from typing import Any

import mlx.core as mx
import numpy as np

from conformance.backend import sampling
from conformance.backend.sampling import ProcessorFn, SamplerFn, ranked
from conformance.core.errors import ScheduleError, Unsupported
from conformance.core.schedule import Request
from conformance.core.token_choice import RANDOM, Processor, Sampler
from conformance.plugins.mlx_vlm import compat


def make_processors(processors: tuple[Processor, ...]) -> list[ProcessorFn]:
    """The callables for ``processors``; see ``backend.sampling.make_processors``."""
    return sampling.make_processors(processors, "mlx_vlm", compat.processor_maker())


def make_sampler(sampler: Sampler | None) -> SamplerFn | None:
    """The callable for ``sampler``, by the library's own function; ``None`` is greedy.

    Raises:
        ScheduleError: the kind of sampler is unknown.
        Unsupported: this release makes no samplers.
    """
    if sampler is None:
        return None
    if sampler.kind == "rank":
        return ranked(int(sampler.args["rank"]))
    if sampler.kind not in ("library", RANDOM):
        raise ScheduleError(
            f"mlx_vlm: no sampler of kind {sampler.kind!r}; there are library, rank, {RANDOM}"
        )
    made: SamplerFn = compat.sampler_of(sampler.args)
    return made


class ForcedRowsSampler:
    """The generator's one sampler for all rows, which forces the next token of each row."""

    def __init__(
        self, token: Callable[[int, int], int], positions: Callable[[], list[int]]
    ) -> None:
        self._token = token
        self._positions = positions

    def sample_target(
        self, logprobs: mx.array, *, row_ids: list[int], positions: list[int]
    ) -> mx.array:
        """Tokens ``[rows]`` for logprobs ``[rows, vocab]``; ``positions`` index output tokens."""
        del logprobs, row_ids
        return mx.array([self._token(row, at) for row, at in enumerate(positions)], mx.uint32)

    def __call__(self, logprobs: mx.array) -> mx.array:
        """Like ``sample_target``, for releases that pass no positions (up to 0.5)."""
        return self.sample_target(logprobs, row_ids=[], positions=self._positions())


def stopping_processor(stops: Collection[int]) -> Any:
    """A minimal processor for the generator, whose stopping criterion is any of these tokens.

    Tokens that are added to ``stops`` later also end requests from then on.
    """

    class Stopping:
        def add_eos_token_ids(self, _: object = None) -> None: ...

        def __call__(self, token: int) -> bool:
            return token in stops

    return SimpleNamespace(tokenizer=SimpleNamespace(stopping_criteria=Stopping()))


def stop_tokens(request: Request) -> set[int]:
    """The tokens that end a request.

    Raises:
        Unsupported: the request has stop sequences of several tokens.
    """
    if any(len(sequence) != 1 for sequence in request.stop):
        raise Unsupported("mlx-vlm does not support stop sequences of several tokens")
    return {token for (token,) in request.stop}


def distribution(pairs: Sequence[tuple[int, float]] | None) -> np.ndarray | None:
    """Logprobs ``[vocab]`` from all ``(id, logprob)`` pairs, which are sorted by logprob."""
    if pairs is None:
        return None
    row = np.full(len(pairs), np.nan, np.float32)
    ids, values = zip(*pairs, strict=True)
    row[list(ids)] = values
    return row
