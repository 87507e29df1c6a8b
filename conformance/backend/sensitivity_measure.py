"""Measures how much small defects in a model's single stream change its output.

A plugin defines how its library's models are called; the defects and the measure are the same for
all models.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import mlx.core as mx
import numpy as np
import numpy.typing as npt

from conformance.backend.cache_entries import leaves, places
from conformance.backend.checkpoint import library_errors
from conformance.backend.disturb import (
    copy_cache,
    corrupt,
    exchange,
    parts_of,
    shifted_offsets,
    shifted_rope,
)
from conformance.core.family import Family
from conformance.core.sensitivity import (
    Rounding,
    Sensitivity,
    Signal,
    change,
    combine,
    longest_repeat,
)
from conformance.core.weights import draw

Logprobs = npt.NDArray[np.float64]

# Not a multiple of a usual window, chunk or block: at a boundary nothing reads a chunk's cache.
_PROMPT = 21
_STEPS = 12
_DROPPED = (2, 8, 14)
_HALF = _PROMPT // 2
# The slots that are made wrong, counted back from the newest. The largest change counts, because
# windows and sparse selections ignore some slots by design.
_AGES = (2, 5, 9, 14)
# Nats below which a wrong entry had no effect. An entry that only ranks keys for a selection may be
# slightly wrong without changing the selection: then it is replaced by another row's entry.
_NO_EFFECT = 1e-3


class TextModel(Protocol):
    """A loaded model, called as its library calls it for one request."""

    @property
    def family(self) -> Family:
        """The family that it was made from."""

    @property
    def seed(self) -> int:
        """The seed of the weights, which also decides the prompts."""

    def cache(self) -> list[Any]:
        """An empty cache; all other state of earlier requests is reset."""

    def forward(self, tokens: Sequence[int], cache: list[Any]) -> mx.array:
        """Logits ``[length, vocab]`` of all ``tokens``; the cache is updated."""


@dataclass(frozen=True)
class _Stream:
    """One prompt's greedy continuation, and its logprobs when it is fed again in one piece.

    Shapes:
        logprobs: ``[steps, vocab]``; logits alike.
    """

    loaded: TextModel
    prompt: tuple[int, ...]
    tokens: tuple[int, ...]
    logits: Logprobs
    logprobs: Logprobs
    stepwise: Logprobs


def measure(loaded: TextModel, *, prompts: int = 3) -> Sensitivity:
    """The sensitivity of a model, over a few prompts that its family's seed decides.

    Raises:
        Unsupported: the library says that this machine can't run the model.
        ModelError: the library failed to run the model.
    """
    parts = []
    for index in range(prompts):
        with library_errors(loaded.family, "running"):
            parts.append(_measure(_stream(loaded, _prompt(loaded, index))))
    return combine(tuple(parts))


def _measure(stream: _Stream) -> Sensitivity:
    signals = [_drop(stream), *_slots(stream)]
    if stream.loaded.family.facts.positions:
        signals.append(_shift(stream))
    return Sensitivity(
        distinct=len(set(stream.tokens)),
        repeats=longest_repeat(stream.tokens),
        logit_std=_spread(stream.logits),
        signals=tuple(signals),
        roundings=tuple(_roundings(stream)),
    )


def _spread(logits: Logprobs) -> float:
    """Standard deviation over the vocabulary, mean over steps; forbidden tokens (-inf) left out."""
    return float(np.mean([row[np.isfinite(row)].std() for row in logits]))


def _prompt(loaded: TextModel, index: int) -> tuple[int, ...]:
    low, high = loaded.family.tokens
    noise = draw(f"prompt.{index}", (_PROMPT, 8), seed=loaded.seed)
    # Sums of many draws, taken modulo the range, are as good as uniform.
    spread = np.abs(noise).sum(axis=-1) * 1e6
    return tuple(low + int(value) % (high - low) for value in spread)


def _stream(loaded: TextModel, prompt: tuple[int, ...]) -> _Stream:
    cache = loaded.cache()
    rows = [_forward(loaded, prompt, cache)[-1]]
    tokens = [int(rows[0].argmax())]
    while len(rows) < _STEPS:
        rows.append(_forward(loaded, tokens[-1:], cache)[-1])
        tokens.append(int(rows[-1].argmax()))
    logits = _replay(loaded, prompt, tuple(tokens), pieces=(_PROMPT,))
    return _Stream(
        loaded=loaded,
        prompt=prompt,
        tokens=tuple(tokens),
        logits=logits,
        logprobs=_normalised(logits),
        stepwise=_normalised(np.stack(rows)),
    )


def _forward(loaded: TextModel, tokens: Sequence[int], cache: list[Any]) -> Logprobs:
    """Logits of all ``tokens``, ``[length, vocab]``; the cache is updated."""
    return np.array(loaded.forward(tokens, cache).astype(mx.float32)).astype(np.float64)


def _normalised(logits: Logprobs) -> Logprobs:
    shifted = logits - logits.max(axis=-1, keepdims=True)
    result: Logprobs = shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))
    return result


def _prefill(
    loaded: TextModel, prompt: Sequence[int], pieces: Sequence[int]
) -> tuple[list[Any], Logprobs]:
    """A cache that holds ``prompt``, fed in ``pieces``, and the logits of its last token."""
    cache = loaded.cache()
    start = 0
    for size in pieces:
        last = _forward(loaded, prompt[start : start + size], cache)[-1]
        start += size
    return cache, last


def _replay(
    loaded: TextModel, prompt: Sequence[int], tokens: tuple[int, ...], *, pieces: Sequence[int]
) -> Logprobs:
    """Logits for each of ``tokens``, fed in one piece after the prompt."""
    cache, first = _prefill(loaded, prompt, pieces)
    return np.concatenate([first[None], _forward(loaded, tokens[:-1], cache)])


def _roundings(stream: _Stream) -> Iterator[Rounding]:
    """The changes by harmless rearrangements of the same single stream."""
    yield Rounding("decoded token by token", change(stream.logprobs, stream.stepwise))
    for pieces in ((_PROMPT - 1, 1), (7, _PROMPT - 7), (5, 6, _PROMPT - 11)):
        other = _replay(stream.loaded, stream.prompt, stream.tokens, pieces=pieces)
        name = "prefilled in pieces of " + "+".join(map(str, pieces))
        yield Rounding(name, change(stream.logprobs, _normalised(other)))


def _drop(stream: _Stream) -> Signal:
    """The smallest change by one missing prompt token."""
    found = []
    for index in _DROPPED:
        prompt = stream.prompt[:index] + stream.prompt[index + 1 :]
        other = _replay(stream.loaded, prompt, stream.tokens, pieces=(len(prompt),))
        found.append(change(stream.logprobs[1:], _normalised(other)[1:]))
    return Signal("drop", "prompt token", min(found))


def _shift(stream: _Stream) -> Signal:
    """The change when the positions of the second half of the prompt are one too high.

    A shift of the whole row would be invisible: rotary positions are relative.
    """
    found = []
    for shifted in (shifted_rope, shifted_offsets):
        cache, _ = _prefill(stream.loaded, stream.prompt, (_HALF,))
        with shifted(cache) as seen:
            _forward(stream.loaded, stream.prompt[_HALF:], cache)
            rest = _forward(stream.loaded, stream.tokens[:-1], cache)
        if seen():
            found.append(change(stream.logprobs[1:], _normalised(rest)))
            break
    return Signal("shift", "second half of the prompt", max(found, default=0.0))


def _slots(stream: _Stream) -> Iterator[Signal]:
    """The change by one wrong cache entry, for each layer and each kind of entry.

    Keys and values: a slot gets those of the last token. States (recurrent, convolution, and
    everything else in a cache): the state of one token earlier. If that has no effect, the entry of
    another row.
    """
    earlier, _ = _prefill(stream.loaded, stream.prompt, (_PROMPT - 1,))
    cache, _ = _prefill(stream.loaded, stream.prompt, (_PROMPT - 1, 1))

    other, _ = _prefill(stream.loaded, stream.prompt[::-1], (_PROMPT - 1, 1))

    def run(entries: list[Any]) -> Logprobs:
        return _normalised(_forward(stream.loaded, stream.tokens[:-1], entries))

    reference = run(copy_cache(cache))
    rows = zip(leaves(earlier), leaves(cache), leaves(other), places(cache), strict=True)
    for number, (stale, entry, theirs, layer) in enumerate(rows):
        for name in parts_of(entry):
            moved = []
            for age in _AGES if name == "keys and values" else (0,):
                wrong = copy_cache(cache)
                if corrupt(list(leaves(wrong))[number], stale, name, age):
                    moved.append(change(reference, run(wrong)))
            if moved and max(moved) < _NO_EFFECT:
                wrong = copy_cache(cache)
                if exchange(list(leaves(wrong))[number], theirs, name):
                    moved.append(change(reference, run(wrong)))
            if moved:
                where = f"cache {layer}, {type(entry).__name__}, {name}"
                yield Signal("slot", where, max(moved))
