"""In which order mlx-vlm's generator must take its prompts, and what each of its calls must do."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from conformance.plugins.mlx_vlm.properties.expected_rows import Asked, Token


@dataclass
class Limits:
    """Settings of a generator.

    Attributes:
        decoding: rows that decode at most.
        joining: rows of a prompt batch.
        piece: columns of a prompt that are computed at once; all for ``None``.
    """

    decoding: int
    joining: int
    piece: int | None


@dataclass
class Step:
    """What one call of ``next`` does.

    Attributes:
        given: the number and the token of each row that decodes.
        progress: the rows whose prompts ended.
        calls: of the model: rows, columns, and what the library says of them.
    """

    given: list[tuple[int, Token]] = field(default_factory=list)
    progress: list[int] = field(default_factory=list)
    calls: list[tuple[int, int, str]] = field(default_factory=list)


class ExpectedSteps:
    """Rows by number: those that wait, shortest first, those of the prompt batch, those that decode.

    Attributes:
        computed: tokens of prompts that were taken.
        rows: those that decode.
    """

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._asked: dict[int, Asked] = {}
        self._answers: dict[int, Iterator[Token]] = {}
        self._waiting: list[int] = []
        self._prompts: list[int] = []
        self._columns = 0
        self.rows: list[int] = []
        self.computed = 0

    def insert(self, asked: Mapping[int, tuple[Asked, Iterator[Token]]]) -> None:
        """Requests, by their numbers."""
        for number, (one, answer) in asked.items():
            self._asked[number], self._answers[number] = one, answer
        waiting = [*self._waiting, *asked]
        self._waiting = sorted(waiting, key=lambda number: len(self._asked[number].tokens))

    def remove(self, number: int) -> bool:
        """A request leaves, wherever it is; whether it was there."""
        for rows in (self._waiting, self._prompts, self.rows):
            if number in rows:
                rows.remove(number)
                return True
        return False

    @property
    def pending(self) -> bool:
        """Whether prompts wait or are computed."""
        return bool(self._waiting or self._prompts)

    def next(self) -> Step:
        """Rows that decode come first; then a piece of the prompts, or their end."""
        step = Step()
        if self.rows:
            processors = [p for row in self.rows for p in self._asked[row].processors]
            step.calls.append((len(self.rows), 1, "decode"))
            step.given = [(row, next(self._answers[row])) for row in self.rows]
            self.rows = [row for row, token in step.given if token.reason is None]
            if any(one.requires_immediate_decode_yield for one in processors):
                return step
        room = self._limits.decoding - len(self.rows)
        if room <= 0:
            return step
        if self._prompts:
            self._go_on(step)
        elif self._waiting and room >= self._limits.joining:
            count = self._limits.joining
            self._prompts, self._waiting = self._waiting[:count], self._waiting[count:]
            lengths = [len(self._asked[row].tokens) for row in self._prompts]
            self._columns = max(lengths)
            self.computed += sum(lengths)
            self._go_on(step)
        return step

    def _go_on(self, step: Step) -> None:
        """A piece of the prompts; the last column is always computed by itself."""
        count = len(self._prompts)
        if self._limits.piece is not None and self._columns > 1:
            piece = min(self._limits.piece, self._columns - 1)
            step.calls.append((count, piece, "prefill"))
            self._columns -= piece
            return
        step.calls.append((count, self._columns, "end"))
        step.progress = list(self._prompts)
        self.rows += self._prompts
        self._prompts = []
