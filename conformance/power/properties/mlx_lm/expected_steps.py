"""The required order of prompts in mlx-lm's generator, and the required steps of its calls."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from conformance.backend.expected_rows import Asked, Token, answer

STOPS = {(5,), (17, 3), (8, 8, 2)}
"""The sequences that end an answer."""
WINDOWS = (None, 7)
"""The number of tokens that the model's layers see."""


@dataclass
class Row:
    """A request in segments, possibly after a kept prefix."""

    asked: Asked
    segments: list[list[int]]
    rank: int | None = None
    before: list[int] = field(default_factory=list)
    kept: list[Any] | None = None
    given: list[int] = field(default_factory=list)

    def answer(self) -> Iterator[Token]:
        """The answer by itself."""
        whole = replace(self.asked, tokens=self.before + self.asked.tokens)
        return answer(whole, STOPS, rank=lambda _: self.rank or 0, windows=WINDOWS)


@dataclass
class _Prompt:
    number: int
    segments: list[list[int]]
    done: int
    total: int


class Expected:
    """The rows at work, and the required result of each call of ``next``."""

    def __init__(self, decoding: int, joining: int, piece: int) -> None:
        self._bounds = decoding, joining, piece
        self.rows: dict[int, Row] = {}
        self._answers: dict[int, Iterator[Token]] = {}
        self.waiting: list[int] = []
        self.prompts: list[_Prompt] = []
        self.decoding: list[int] = []
        self.counted: Counter[str] = Counter()

    def insert(self, number: int, row: Row) -> None:
        """Queue the row behind the others."""
        self.rows[number], self._answers[number] = row, row.answer()
        self.waiting.append(number)

    def remove(self, number: int) -> None:
        """Remove the row, wherever it is."""
        self.waiting = [n for n in self.waiting if n != number]
        self.decoding = [n for n in self.decoding if n != number]
        self.prompts = [p for p in self.prompts if p.number != number]

    def next(self) -> tuple[list[tuple[Any, ...]], list[tuple[int, Token]], list[tuple[int, int]]]:
        """Reports about prompts, tokens of rows, and rows and columns of the model's calls."""
        said: list[tuple[Any, ...]] = []
        given: list[tuple[int, Token]] = []
        calls: list[tuple[int, int]] = []
        decoding, joining, piece = self._bounds
        if self.decoding:
            calls.append((len(self.decoding), 1))
            given = [(n, next(self._answers[n])) for n in self.decoding]
            self.decoding = [n for n, token in given if token.reason is None]
            self.counted["given"] += len(given)
        room = max(decoding, joining) - len(self.decoding)
        if room <= 0:
            return said, given, calls
        for number in self.waiting[: max(min(joining - len(self.prompts), room), 0)]:
            segments = [list(segment) for segment in self.rows[number].segments if segment]
            if len(segments[-1]) > 1:
                segments[-1:] = [segments[-1][:-1], segments[-1][-1:]]
            self.prompts.append(_Prompt(number, segments, 0, sum(map(len, segments))))
            self.waiting.remove(number)
        ready = [p for p in self.prompts if [len(s) for s in p.segments] == [1]]
        if ready:
            said += [(p.number, (p.total, p.total), True, True) for p in ready]
            calls.append((len(ready), 1))
            self.decoding += [p.number for p in ready]
            self.prompts = [p for p in self.prompts if p not in ready]
        columns = 0
        for prompt in self.prompts:
            count = min(piece, len(prompt.segments[0]))
            prompt.segments[0] = prompt.segments[0][count:]
            ends = not prompt.segments[0]
            prompt.segments = [segment for segment in prompt.segments if segment]
            prompt.done += count
            self.counted["prompts"] += count
            columns = max(columns, count)
            said.append((prompt.number, (prompt.done, prompt.total), ends, False))
        if columns:
            calls.append((len(self.prompts), columns))
        return said, given, calls
