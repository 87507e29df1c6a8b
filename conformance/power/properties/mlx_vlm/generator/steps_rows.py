"""mlx-vlm's batch of decoding rows: rows join and leave between any two tokens."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import mlx.core as mx
import numpy as np

from conformance.backend.stub_model import logprobs_of
from conformance.core.properties import Property
from conformance.plugins.mlx_vlm import compat

ar: Any = compat.part("generate.ar")

_VOCAB, _STOP, _TOP, _NEAR = 17, 16, 3, 1e-4
_CASES, _MOST_STEPS = 10, 14


def joining_properties() -> list[Property]:
    """The property of ``GenerationBatch``."""
    names = ("GenerationBatch.*", "_extend_cache", "_is_batch_cache_entry")
    return [Property("generator: rows that come and leave", "mlx_vlm/generate/ar.py", names, _rows)]


class _Cache:
    """Holds the number of each row."""

    def __init__(self, rows: Sequence[int]) -> None:
        self.state = mx.array(list(rows))

    def filter(self, keep: mx.array) -> None:
        self.state = self.state[keep]

    def extend(self, other: _Cache) -> None:
        self.state = mx.concatenate([self.state, other.state])


def _logits(token: Any, row: Any, delta: Any) -> Any:
    """Logits after a token, by the row and its rope delta; the last token's is highest."""
    best = (token * 3 + row + delta) % (_VOCAB - 1)
    return -(((best[..., None] - np.arange(_VOCAB)) % _VOCAB) * 0.5)


def _model(tokens: mx.array, *, cache: list[_Cache], rope_deltas: Any = None) -> Any:
    delta = np.zeros(len(tokens), int) if rope_deltas is None else np.array(rope_deltas)[:, 0]
    logits = _logits(np.array(tokens)[:, 0], np.array(cache[0].state), delta)
    return SimpleNamespace(logits=mx.array(logits.astype(np.float32))[:, None])


@dataclass
class _Row:
    """A decoding row; ``own`` numbers its processors, ``forced`` follows its second token."""

    number: int
    token: int
    most: int
    delta: int
    own: list[int]
    forced: int | None
    context: list[int]
    given: int = 0
    scores: np.ndarray | None = field(default=None)

    def next(self) -> tuple[Any, ...]:
        """The number, token, logprob, best tokens and finish reason of the next step."""
        scores, token = self.scores, self.token
        # A forced token has no defined logprob, and the first token's is unknown.
        score = 0.0 if scores is None else float(scores[token])
        known = self.forced is None or self.given != 2
        self.given += 1
        self.context.append(token)
        one = np.array(token), np.array(self.number), np.array(self.delta)
        logits = _logits(*one)
        for number in self.own:
            logits = logits + _bonus(self.context, number)
        self.scores = logprobs_of(logits)
        self.token = int(self.scores.argmax())
        if self.forced is not None and self.given == 2:
            self.token = self.forced
        reason = "stop" if token == _STOP else "length" if self.given >= self.most else None
        best = None if scores is None else np.argsort(-scores, kind="stable")[:_TOP].tolist()
        return self.number, token, score if known else None, best, reason


def _bonus(context: Sequence[int], number: int) -> np.ndarray:
    """The bias of a processor after these tokens."""
    found = np.zeros(_VOCAB)
    found[(sum(context) * 5 + len(context) + number) % _VOCAB] = 20.25
    return found


class _Processor:
    """A processor that adds to one token."""

    def __init__(self, number: int) -> None:
        self._number = number

    def __call__(self, tokens: mx.array, logits: mx.array) -> mx.array:
        return logits + mx.array(_bonus(np.array(tokens).tolist(), self._number).astype("f"))


class _Budget:
    """Forces the token after the second one."""

    def __init__(self, token: int) -> None:
        self._token, self._seen = token, 0

    def __call__(self, _: int) -> None:
        self._seen += 1

    def pop_forced_token_id(self) -> int | None:
        return self._token if self._seen == 2 else None


def _drawn(draw: np.random.Generator, first: int, *, deltas: bool) -> list[_Row]:
    found, processed = [], draw.integers(0, 3)
    for number in range(first, first + int(draw.integers(1, 4))):
        token, most, delta, forced = (int(n) for n in draw.integers(1, 8, 4))
        # For all rows, for none, or for the first ones.
        own = [number, 3] if processed == 1 or (processed == 2 and number == first) else []
        context = draw.integers(0, _VOCAB, 3).tolist()
        also = forced if number % 3 == 0 else None
        found.append(_Row(number, token, 2 + most, delta * deltas, own, also, context))
    return found


def _batch(rows: Sequence[_Row], *, deltas: bool) -> Any:
    """The library's batch of these rows; processors are given for all of them or for none."""
    own: list[Any] = [[_Processor(n) for n in row.own] or None for row in rows]
    found = ar.GenerationBatch(
        SimpleNamespace(language_model=_model),
        [row.number for row in rows],
        mx.array([row.token for row in rows]),
        [_Cache([row.number for row in rows])],
        lambda scores: mx.argmax(scores, axis=-1),
        lambda token: token == _STOP,
        [row.most for row in rows],
        top_logprobs_k=_TOP,
        token_context=[list(row.context) for row in rows],
        logits_processors=own if any(own) else None,
        thinking_budget_criteria=[
            None if row.forced is None else _Budget(row.forced) for row in rows
        ],
    )
    if deltas:
        found._rope_deltas = mx.array([[row.delta] for row in rows])
    return found


def _stepped(batch: Any, rows: list[_Row]) -> Iterator[str]:
    """Take a token of each row; rows that end leave."""
    got, want = batch.next(), [row.next() for row in rows]
    rows[:] = [row for row, (*_, reason) in zip(rows, want, strict=True) if reason is None]
    if [(one.uid, one.token, one.finish_reason) for one in got] != [
        (number, token, reason) for number, token, _, _, reason in want
    ]:
        yield f"the rows get {got}, not {want}"
        return
    for one, (_, _, score, best, _) in zip(got, want, strict=True):
        tops = one.top_logprobs and [token for token, _ in one.top_logprobs]
        off = score is not None and not abs(one.token_logprob - score) < _NEAR
        if off or tops != best:
            yield f"a row gets {one}, not {score} among {best}"
    if len(batch) != len(rows) or batch.uids != [row.number for row in rows]:
        yield f"rows {batch.uids} are left, not {[row.number for row in rows]}"


def _rows() -> Iterator[str]:
    """Each row gives the same tokens as alone, whichever rows join and leave."""
    for seed in range(_CASES):
        draw, deltas = np.random.default_rng(seed), seed % 2 == 1
        rows: list[_Row] = []
        batch = ar.GenerationBatch.empty(
            SimpleNamespace(language_model=_model) if seed % 4 < 2 else _model,
            lambda scores: mx.argmax(scores, axis=-1),
            lambda token: token == _STOP,
            top_logprobs_k=_TOP,
        )
        for turn in range(_MOST_STEPS):
            if turn % 3 == 0:
                more = _drawn(draw, 3 * turn, deltas=deltas)
                other = _batch(more, deltas=deltas)
                # The row has begun, like rows of batches whose prompts ended.
                yield from _stepped(other, more)
                batch.extend(other)
                rows += more
            elif turn % 4 == 1:
                keep = [n for n in range(len(rows)) if draw.integers(0, 3)] if seed % 3 else []
                batch.filter(keep)
                rows = [rows[n] for n in keep]
            for problem in _stepped(batch, rows):
                yield f"case {seed}, step {turn}: {problem}"
                return
