"""Sampling in mlx-vlm: samplers, processors, thinking budgets, forced tokens and stop tokens."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import mlx.core as mx
import numpy as np

from conformance.backend import sampling
from conformance.backend.redrawing import ComparedSampler
from conformance.backend.sampling import ProcessorFn, SamplerFn, ranked
from conformance.core.errors import ScheduleError, Unsupported
from conformance.core.schedule import Budget, Request
from conformance.core.token_choice import BY_POSITION, RANDOM, Processor, Sampler
from conformance.core.trace import Claim
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
    if sampler.kind == BY_POSITION:
        return PositionSampler(int(sampler.args["ranks"]))
    if sampler.kind not in ("library", RANDOM, "compared"):
        raise ScheduleError(
            f"mlx_vlm: no sampler of kind {sampler.kind!r}; "
            f"there are library, rank, compared, {BY_POSITION}, {RANDOM}"
        )
    made: SamplerFn = compat.sampler_of(sampler.args)
    return ComparedSampler(made, sampler.args) if sampler.kind == "compared" else made


class PositionSampler:
    """Takes a token of another rank at each position of a row's output, without random numbers.

    It has the method by which the generator gives its seeded samplers the rows and positions of
    what they draw (``mlx_vlm.generate.ar._PositionedTargetSampler``). As rows are not used, a row
    gives the same tokens in each batch as by itself.

    Args:
        ranks: the likeliest token is taken first, then the next, up to so many; then again.
    """

    def __init__(self, ranks: int) -> None:
        self._ranks = ranks
        self._calls = 0

    def sample_target(
        self, logprobs: mx.array, *, row_ids: list[int], positions: list[int]
    ) -> mx.array:
        """Tokens ``[rows]`` for logprobs ``[rows, vocab]``; ``positions`` index output tokens."""
        del row_ids
        places = -1 - mx.array(positions)[:, None] % self._ranks
        return mx.take_along_axis(mx.argsort(logprobs, axis=-1), places, axis=-1)[:, 0]

    def __call__(self, logprobs: mx.array) -> mx.array:
        """Each call of a single stream is for the next position.

        A drafter calls it for its own drafts, ``[rows, tokens, vocab]``, which may have any rank.
        """
        rank = self._calls % self._ranks
        self._calls += 1
        return ranked(rank)(logprobs)


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


def stopping_criteria() -> Any:
    """The library's own object that ends requests, without a token yet."""
    return compat.part("utils").StoppingCriteria([], SimpleNamespace())


def end_at(criteria: Any, tokens: Collection[int]) -> None:
    """Let ``tokens`` end requests, in no order, and no longer those of a model before."""
    criteria.reset([-1 - number for number in range(len(tokens))])
    criteria.reset(sorted(tokens, reverse=True))


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


def alternatives(pairs: Sequence[tuple[int, float]]) -> Claim:
    """The engine's claim that these ``(id, logprob)`` pairs begin with the likeliest."""
    later = sum(after[1] > before[1] for before, after in pairwise(pairs))
    return Claim("alternatives before a likelier one", "0", str(later), not later)


_START, _END = "start", "end"
# No token: the prompt has opened the thinking.
_NEVER = -1


def criteria_of(budget: Budget) -> Any:
    """A new ``ThinkingBudgetCriteria`` of one row.

    Raises:
        Unsupported: this release has no thinking budgets.
    """
    made = getattr(compat.part("utils"), "ThinkingBudgetCriteria", None)
    if made is None:
        raise Unsupported("this release of mlx-vlm has no thinking budgets")
    return made(
        _Markers(budget),
        budget.tokens,
        thinking_end_token=_END,
        thinking_start_token=_START,
        enable_thinking=True,
        prompt_preopens_thinking=not budget.later,
    )


class _Markers:
    """The part of a tokenizer that the criteria ask: the ids of what opens and closes thinking."""

    def __init__(self, budget: Budget) -> None:
        self._forced = budget.forced
        self._start = _NEVER if budget.opened_by is None else budget.opened_by

    def encode(self, text: str, *, add_special_tokens: bool) -> list[int]:
        """The ids of a marker, or of the line break before the one that ends."""
        del add_special_tokens
        return {_START: [self._start], _END: list(self._forced[-1:])}.get(
            text, list(self._forced[:-1])
        )
