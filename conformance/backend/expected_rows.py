"""The answer that a batch generator must give for a row, and the samplers that decide it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import mlx.core as mx
import numpy as np

from conformance.backend.stub_model import EMBEDDINGS, VOCAB, logits_alone, logprobs_of

_BIAS = np.random.default_rng(23).normal(0, 2, (VOCAB, VOCAB)).astype(np.float32)


class Biased:
    """A logits processor whose bias depends on each token of its history."""

    def __init__(self, number: int, *, at_once: bool = False) -> None:
        """``at_once``: a decoding step with it ends a call of ``next``."""
        self._number = number
        self.requires_immediate_decode_yield = at_once

    def added(self, tokens: Sequence[int]) -> np.ndarray:
        """The bias for the logits after these tokens."""
        weights = np.arange(1, len(tokens) + 1) + self._number
        return np.asarray(_BIAS[int((np.array(tokens, int) * weights).sum()) % VOCAB])

    def __call__(self, tokens: mx.array, logits: mx.array) -> mx.array:
        """The processed logits, as the library calls a processor."""
        if logits.shape != (1, VOCAB):
            raise ValueError(f"a processor is given logits of {logits.shape}")
        return logits + mx.array(self.added(np.array(tokens).tolist()))


class ByLastToken(Biased):
    """A processor that gets only the last token during decoding."""

    def __call__(self, tokens: mx.array, logits: mx.array) -> mx.array:
        """Process logits after the prompt."""
        self._tokens: list[int] = np.array(tokens).tolist()
        return super().__call__(tokens, logits)

    def process_last_token(self, token: int, logits: mx.array) -> mx.array:
        """Process logits after a generated token."""
        self._tokens.append(token)
        return super().__call__(mx.array(self._tokens), logits)


class Forcing:
    """A thinking budget: after a number of tokens, the next one is forced."""

    def __init__(self, after: int, token: int) -> None:
        self.after, self.token = after, token
        self._seen = 0

    def __call__(self, token: int) -> None:
        """Count a chosen token."""
        if not isinstance(token, int):
            raise TypeError(f"a budget is given {token!r}")
        self._seen += 1

    def pop_forced_token_id(self) -> int | None:
        """The token that must follow, if any."""
        return self.token if self._seen == self.after else None


class Ranked:
    """A sampler with positions: the position of a token decides its rank."""

    @staticmethod
    def rank(position: int) -> int:
        """The rank of the token, counted from the best."""
        return position % 3

    def __call__(self, _: mx.array) -> mx.array:
        """Raise: positions are known, so this must not be called."""
        raise ValueError("a sampler with positions is called without any")

    def sample_target(
        self, logprobs: mx.array, *, row_ids: Sequence[int], positions: Sequence[int]
    ) -> mx.array:
        """A token of each row."""
        if any(row_ids) or not len(row_ids) == len(positions) == logprobs.shape[0]:
            raise ValueError(f"rows {row_ids} at {positions} are asked for")
        order = mx.argsort(-logprobs, axis=-1)
        return order[mx.arange(len(positions)), mx.array([self.rank(p) for p in positions])]


@dataclass
class Asked:
    """A request.

    Attributes:
        hidden: embeddings of the prompt; by default the tokens' embeddings.
        positions: positions of the prompt; by default from 0.
        delta: added to positions after the prompt.
        key: the hash of other content than tokens, such as a tenant or an image.
    """

    tokens: list[int]
    most: int
    hidden: np.ndarray | None = None
    positions: np.ndarray | None = None
    delta: int = 0
    key: int = 0
    processors: list[Biased] = field(default_factory=list)
    budget: tuple[int, int] | None = None

    def embeddings(self) -> np.ndarray:
        """The embeddings of the prompt."""
        return EMBEDDINGS[self.tokens] if self.hidden is None else self.hidden


@dataclass(frozen=True)
class Token:
    """One token of an answer; a forced token has no defined logprob.

    Attributes:
        scores: the logprobs of all tokens.
    """

    token: int
    logprob: float | None
    top: list[tuple[int, float]] | None
    reason: str | None
    scores: np.ndarray = field(repr=False, compare=False)


def answer(
    asked: Asked,
    stops: set[tuple[int, ...]],
    *,
    rank: Callable[[int], int] = lambda _: 0,
    logprobs: bool = True,
    top: int = 0,
    windows: Sequence[int | None] = (None,),
) -> Iterator[Token]:
    """The tokens of a request by itself.

    Args:
        stops: sequences of tokens that end an answer.
        rank: returns the rank of the token to take at a position of the answer.
        logprobs: whether logprobs are requested.
        top: the number of best tokens whose logprobs are also requested.
    """
    hidden, context = asked.embeddings(), list(asked.tokens)
    at = np.arange(len(context)) if asked.positions is None else asked.positions
    given: list[int] = []
    for number in range(asked.most):
        logits = logits_alone(hidden, at, windows)
        for processor in asked.processors:
            logits = logits + processor.added(context)
        scores = logprobs_of(logits)
        order = np.argsort(-scores)
        token = int(order[rank(number)])
        forced = asked.budget is not None and asked.budget[0] == number and number > 0
        if forced and asked.budget is not None:
            token = asked.budget[1]
        best = [(int(n), float(scores[n])) for n in order[:top]]
        last = "length" if number + 1 == asked.most else None
        given.append(token)
        ends = any(tuple(given[-len(stop) :]) == stop for stop in stops)
        reason = "stop" if ends else last
        one = None if forced else float(scores[token]) if logprobs else 0.0
        yield Token(token, one, best if top else None, reason, scores)
        if reason is not None:
            return
        context.append(token)
        hidden = np.concatenate([hidden, EMBEDDINGS[[token]]])
        at = np.append(at, len(asked.tokens) + number + asked.delta)
