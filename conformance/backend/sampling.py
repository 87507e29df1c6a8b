"""The project's samplers and processors: forced tokens, random streams and grammars per row."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import mlx.core as mx
import numpy as np

from conformance.core.errors import ScheduleError, Unsupported
from conformance.core.grammar import Grammar
from conformance.core.token_choice import Processor, random_scores

CLOSE = 2.0**-16
"""By how many nats the likeliest token is ahead: less than half precision has, but not float32."""

SamplerFn = Callable[[mx.array], mx.array]
ProcessorFn = Callable[[mx.array, mx.array], mx.array]


class ForcedSampler:
    """Returns given tokens, one for each call, whatever the logprobs are.

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
    """Samples with its own random stream, so that a row draws the same in every batch."""

    def __init__(self, temperature: float, seed: int) -> None:
        self._scale = 1.0 / temperature
        self._seed = seed
        self._calls = 0

    def __call__(self, logprobs: mx.array) -> mx.array:
        """``[rows, vocab]`` in, ``[rows]`` out."""
        noise = random_scores(self._seed, self._calls, logprobs.shape[-1])
        self._calls += 1
        scores = logprobs.astype(mx.float32) * self._scale + mx.array(noise)
        return mx.argmax(scores, axis=-1)


def ranked(rank: int) -> SamplerFn:
    """A sampler of the token with this ``rank`` by likelihood: 0 is greedy.

    It has no random numbers and no state, so one sampler serves all rows.
    """

    def sampler(logprobs: mx.array) -> mx.array:
        """``[rows, vocab]`` in, ``[rows]`` out; of drafts, ``[rows, tokens, vocab]``."""
        return mx.argsort(logprobs, axis=-1)[..., -1 - rank]

    return sampler


class GrammarProcessor:
    """Masks all tokens that a row's grammar does not allow after its output so far.

    Attributes:
        grammar: advances at each call, so each row needs its own processor.
    """

    def __init__(self, grammar: Grammar) -> None:
        self.grammar = grammar

    def __call__(self, tokens: mx.array, logits: mx.array) -> mx.array:
        """Logits ``[1, vocab]`` in and out; ``tokens`` are the row's, including the prompt."""
        self.grammar.advance(np.array(tokens).reshape(-1).tolist())
        allowed = mx.array(self.grammar.allowed(logits.shape[-1]))  # [vocab]
        return mx.where(allowed, logits, mx.array(-mx.inf, logits.dtype))


def close(tokens: mx.array, logits: mx.array) -> mx.array:  # noqa: ARG001 - as all processors
    """Let each token of an even number be almost as likely as the next: in float32 not quite.

    Logits ``[1, vocab]`` in and out. In half precision the two are equal. Which tokens are close
    does not hang on the logits, so that a tie of the best two stays one.
    """
    pairs = logits.shape[-1] // 2
    likelier = logits[:, 1 : 2 * pairs : 2]
    less = (likelier - CLOSE).astype(logits.dtype)
    both = mx.stack([less, likelier], axis=-1).reshape(len(logits), 2 * pairs)
    return mx.concatenate([both, logits[:, 2 * pairs :]], axis=-1)


def _taken(maker: Callable[..., Any], arguments: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments if the library's function has parameters for all of them.

    Raises:
        Unsupported: it lacks some, as in old releases; the message names them.
    """
    taken = inspect.signature(maker).parameters
    lacking = arguments.keys() - taken.keys()
    if lacking and all(one.kind is not one.VAR_KEYWORD for one in taken.values()):
        raise Unsupported(f"{maker.__name__} does not support {', '.join(sorted(lacking))}")
    return arguments


def make_processors(
    processors: tuple[Processor, ...], library: str, maker: Callable[..., list[ProcessorFn]]
) -> list[ProcessorFn]:
    """The callables for ``processors``: the project's own, or made by the library's ``maker``.

    Raises:
        ScheduleError: there is no such kind of processor.
    """
    made: list[ProcessorFn] = []
    for processor in processors:
        arguments: dict[str, Any] = dict(processor.args)
        if processor.kind == "grammar":
            made.append(GrammarProcessor(Grammar(**arguments)))
        elif processor.kind == "close":
            made.append(close)
        elif processor.kind == "library":
            if "logit_bias" in arguments:  # JSON has no integer keys
                arguments["logit_bias"] = {int(k): v for k, v in arguments["logit_bias"].items()}
            made += maker(**_taken(maker, arguments))
        else:
            raise ScheduleError(
                f"{library}: no processor of kind {processor.kind!r}; "
                "there are grammar, close, library"
            )
    return made
