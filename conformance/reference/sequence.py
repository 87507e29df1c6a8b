"""The whole state of one request in one object: no parallel lists that could differ."""

from __future__ import annotations

import copy
from collections.abc import Sequence as Many
from dataclasses import dataclass, field
from typing import Any

import mlx.core as mx
import numpy as np

from conformance.backend.sampling import ProcessorFn, SamplerFn
from conformance.core.rounds import Hints
from conformance.core.schedule import Request
from conformance.core.trace import FinishReason
from conformance.reference.forward import Feed


@dataclass(eq=False)
class Sequence:
    """One row.

    Attributes:
        request: as the caller inserted it.
        caches: the row's own caches, one for each layer.
        todo: tokens not yet fed to the model: of the prompt, then the last one produced.
        pieces: lengths into which the prompt is cut for prefill; empty in decode.
        sampler: chooses from logprobs ``[1, vocab]``; ``None`` is greedy.
        processors: change logits ``[1, vocab]``, given all tokens so far.
        history: tokens in the caches, including those of a prefix.
        produced: output tokens.
        hints: what drafts must contain to be right or wrong, or ``None``.
        pads: it may share a pass with rows of another number of new tokens.
        draft_caches: the draft model's caches for this row; they hold ``draft_fed`` of its tokens.
    """

    request: Request
    caches: list[Any]
    todo: list[int]
    pieces: list[int]
    sampler: SamplerFn | None = None
    processors: list[ProcessorFn] = field(default_factory=list)
    history: list[int] = field(default_factory=list)
    produced: list[int] = field(default_factory=list)
    hints: Hints | None = None
    pads: bool = True
    draft_caches: list[Any] = field(default_factory=list)
    draft_fed: int = 0

    @property
    def name(self) -> str:
        """The request's id."""
        return self.request.request_id

    @property
    def tokens(self) -> list[int]:
        """All tokens so far, fed to the model or not."""
        return self.history + self.todo

    def feed(self, count: int) -> Feed:
        """The next ``count`` tokens for a pass, removed from ``todo``."""
        tokens = tuple(self.todo[:count])
        feed = Feed(self.caches, tokens, self.pads)
        self.history += tokens
        self.todo = self.todo[count:]
        return feed

    def choose(self, logits: mx.array, tokens: Many[int]) -> tuple[int, mx.array]:
        """The token after ``tokens`` and the logprobs ``[vocab]`` that it was chosen from.

        Args:
            logits: ``[vocab]``.
        """
        row = logits[None]  # [1, vocab]
        if self.processors:
            seen = mx.array(list(tokens))
            for processor in self.processors:
                row = processor(seen, row)
        logprobs = row - mx.logsumexp(row, axis=-1, keepdims=True)  # [1, vocab]
        chosen = self.sampler(logprobs) if self.sampler else mx.argmax(logprobs, axis=-1)
        return int(np.array(chosen)[0]), logprobs[0]

    def accept(self, token: int) -> FinishReason | None:
        """Add an output token; returns why the request ends with it, if it does."""
        self.produced.append(token)
        for stop in self.request.stop:
            if stop and tuple(self.produced[-len(stop) :]) == stop:
                return FinishReason.STOP
        if len(self.produced) == self.request.max_tokens:
            return FinishReason.LENGTH
        return None

    def copy_caches(self) -> list[Any]:
        """A copy of the caches that shares nothing with the row's own."""
        return copy.deepcopy(self.caches)


def pieces_of(request: Request, size: int, *, whole: bool) -> list[int]:
    """Lengths into which a prompt is cut, as in the single stream: all but its last token.

    A segment's end is also the end of a piece.

    Args:
        size: the most tokens of a piece.
        whole: the last piece of a prompt that was cut also has the last token, if there is room. A
            prompt that fits into one piece always leaves its last token to the decode pass.
    """
    segments = list(request.segments) or [len(request.prompt)]
    segments[-1] -= 1
    pieces = [
        min(size, segment - start) for segment in segments for start in range(0, segment, size)
    ]
    if whole and len(pieces) > 1 and segments[-1] and pieces[-1] < size:
        pieces[-1] += 1
    return pieces
