"""What samplers are given, held to the logprobs that events report: the same bits."""

from __future__ import annotations

from collections import Counter

import mlx.core as mx
import numpy as np

from conformance.backend.sampling import SamplerFn
from conformance.core.trace import Claim, TokenEvent

WHAT = "tokens that were chosen from other logprobs than are reported"
# Of a row's bits, and its token.
_Key = tuple[int, int]


class RecordedSampler:
    """A row's sampler, or several rows', which keeps its input and its tokens until they are read.

    Attributes:
        sampler: the sampler itself.
    """

    def __init__(self, sampler: SamplerFn) -> None:
        self.sampler = sampler
        self._calls: list[tuple[mx.array, mx.array]] = []
        self._whole: Counter[_Key] = Counter()
        self._chosen: Counter[_Key] = Counter()

    def __call__(self, logprobs: mx.array) -> mx.array:
        """``[rows, vocab]`` in, ``[rows]`` out."""
        tokens = self.sampler(logprobs)
        self._calls.append((logprobs, tokens))
        return tokens

    def claim(self, event: TokenEvent) -> Claim:
        """The engine's claim that the event's token was chosen from the logprobs it reports.

        mlx-lm and mlx-vlm give samplers normalised logprobs, after all processors, and report the
        same. Rows that share a sampler may have been given in any order. An event without the whole
        distribution is held to the logprob of its token.
        """
        self._read()
        whole = event.logprobs is not None
        chosen = event.logprobs if whole else np.float32(event.token_logprob or 0.0)
        kept = self._whole if whole else self._chosen
        key = (_bits(np.asarray(chosen, np.float32)), event.token)
        holds = kept[key] > 0
        if holds:
            kept.subtract([key])
        return Claim(WHAT, "0", str(int(not holds)), holds)

    def _read(self) -> None:
        for logprobs, tokens in self._calls:
            table = np.array(logprobs.astype(mx.float32)).reshape(-1, logprobs.shape[-1])
            for row, token in zip(table, np.array(tokens).reshape(-1).tolist(), strict=True):
                self._whole[_bits(row), token] += 1
                self._chosen[_bits(row[token]), token] += 1
        self._calls.clear()


def _bits(values: np.ndarray | np.float32) -> int:
    return hash(values.tobytes())


def recorded(sampler: SamplerFn | None) -> RecordedSampler | None:
    """The sampler, recorded; ``None`` for none."""
    return None if sampler is None else RecordedSampler(sampler)
