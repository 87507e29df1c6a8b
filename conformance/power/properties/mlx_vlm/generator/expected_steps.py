"""The required order of prompts in mlx-vlm's generator, and the required steps of its calls."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from conformance.backend.expected_rows import Asked, Token


@dataclass
class Limits:
    """Settings of a generator.

    Attributes:
        decoding: the most decoding rows.
        joining: the most rows of a prompt batch.
        piece: the most columns of a prompt computed at once; all for ``None``.
    """

    decoding: int
    joining: int
    piece: int | None


@dataclass
class Kept:
    """Kept prefixes: whole blocks, or whole caches at the ends of blocks and of a prompt.

    Attributes:
        least: the least tokens of a kept cache.
        checkpoints: whether whole caches are kept.
        stored: the kept prefixes, each with the key of its other content.
    """

    block: int
    least: int
    checkpoints: bool
    stored: set[tuple[int, tuple[int, ...]]] = field(default_factory=set)

    def prefix(self, asked: Asked) -> int:
        """The number of a prompt's kept tokens; its last token is always computed."""
        tokens = asked.tokens
        counts = [n for n in range(1, len(tokens)) if (asked.key, tuple(tokens[:n])) in self.stored]
        return max(counts, default=0)

    def ends(self, asked: Asked) -> list[int]:
        """The numbers of tokens after which a cache must be kept."""
        last = len(asked.tokens) - 1
        if not self.checkpoints or last < 1:
            return []
        between = range(self.block, last, self.block)
        return [*(n for n in between if n >= self.least), last]

    def store(self, asked: Asked, prefix: int, done: int, *, ended: bool) -> None:
        """Store ``done`` tokens of a prompt, of which the first ``prefix`` were kept before.

        Args:
            ended: whether all prompts of the batch have ended.
        """
        count = len(asked.tokens)
        if not self.checkpoints:
            lengths = [*range(self.block, count + 1, self.block)] if ended else []
        else:
            every = [n for n in self.ends(asked) if n >= max(self.least, prefix + 1)]
            whole = ended and count >= self.least and not every and not prefix
            lengths = [count] if whole else [n for n in every if n <= done]
        self.stored |= {(asked.key, tuple(asked.tokens[:n])) for n in lengths}


@dataclass
class Step:
    """The required result of one call of ``next``.

    Attributes:
        given: the number and the token of each decoding row.
        progress: the rows whose prompts ended, their tokens, and how many of them were kept before.
        calls: the model's calls: rows, columns, and the number of last columns whose logits are
            kept; -1 for all, 0 for a decoding call.
    """

    given: list[tuple[int, Token]] = field(default_factory=list)
    progress: list[tuple[int, int, int]] = field(default_factory=list)
    calls: list[tuple[int, int, int]] = field(default_factory=list)


class ExpectedSteps:
    """Rows by number: waiting rows, shortest first, rows in prefill, and decoding rows.

    Attributes:
        computed: the number of prompt tokens taken.
        rows: the decoding rows.
    """

    def __init__(self, limits: Limits, kept: Kept | None = None) -> None:
        self._limits, self._kept = limits, kept
        self._prefixes: dict[int, int] = {}
        self._done = 0
        self._asked: dict[int, Asked] = {}
        self._answers: dict[int, Iterator[Token]] = {}
        self._waiting: list[int] = []
        self._prompts: list[int] = []
        self._columns = 0
        self.rows: list[int] = []
        self.computed = 0

    def insert(self, asked: Mapping[int, tuple[Asked, Iterator[Token]]]) -> None:
        """Queue requests, by their numbers."""
        for number, (one, answer) in asked.items():
            self._asked[number], self._answers[number] = one, answer
        waiting = [*self._waiting, *asked]
        self._waiting = sorted(waiting, key=lambda number: len(self._asked[number].tokens))

    def remove(self, number: int) -> bool:
        """Remove a request, wherever it is; returns whether it was there."""
        for rows in (self._waiting, self._prompts, self.rows):
            if number in rows:
                rows.remove(number)
                return True
        return False

    @property
    def pending(self) -> bool:
        """Whether any prompt waits or is in prefill."""
        return bool(self._waiting or self._prompts)

    def next(self) -> Step:
        """Rows that decode come first; then a piece of the prompts, or their end."""
        step = Step()
        if self.rows:
            processors = [p for row in self.rows for p in self._asked[row].processors]
            step.calls.append((len(self.rows), 1, 0))
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
            self._admit()
            self._go_on(step)
        return step

    def _admit(self) -> None:
        find = self._kept.prefix if self._kept else lambda _: 0
        self._prefixes = {row: find(self._asked[row]) for row in self._prompts}
        self._done, self._columns = 0, max(map(self._rest, self._prompts))
        self.computed += sum(map(self._rest, self._prompts))

    def _rest(self, row: int) -> int:
        """The number of a prompt's tokens to compute."""
        return len(self._asked[row].tokens) - self._prefixes[row]

    def _cuts(self) -> Iterator[int]:
        """Columns at which a piece must end: where a cache is kept, or a shorter row ends.

        With a kept prefix, rows begin together; otherwise they end together.
        """
        begin_together = any(self._prefixes.values())
        for row in self._prompts:
            ends = self._kept.ends(self._asked[row]) if self._kept else []
            first = -self._prefixes[row] if begin_together else self._columns - self._rest(row)
            yield from (n + first for n in ends if n > self._prefixes[row])
            if begin_together:
                yield self._rest(row)

    def _go_on(self, step: Step) -> None:
        """Compute a piece of the prompts; the last column is always a piece by itself."""
        count, left = len(self._prompts), self._columns - self._done
        cuts = [n - self._done for n in self._cuts() if self._done < n < self._columns]
        checkpoint = self._kept is not None and self._kept.checkpoints and bool(cuts)
        if (self._limits.piece is not None or checkpoint) and left > 1:
            piece = min(self._limits.piece or left, left - 1, *cuts)
            step.calls.append((count, piece, -1))
            self._done += piece
            self._store()
            return
        step.calls.append((count, left, 1 + self._padded()))
        for row in self._prompts:
            asked, prefix = self._asked[row], self._prefixes[row]
            step.progress.append((row, len(asked.tokens), prefix))
        self._done = self._columns
        self._store()
        self.rows += self._prompts
        self._prompts = []

    def _store(self) -> None:
        for row in self._prompts:
            asked, prefix = self._asked[row], self._prefixes[row]
            behind = 0 if any(self._prefixes.values()) else self._columns - self._rest(row)
            done = min(max(self._done - behind, 0), self._rest(row))
            if self._kept:
                self._kept.store(asked, prefix, prefix + done, ended=self._done == self._columns)

    def _padded(self) -> int:
        """The number of columns after the last token of an unfinished row."""
        if not any(self._prefixes.values()):
            return 0
        rests = [self._rest(row) for row in self._prompts]
        return max(self._columns - rest for rest in rests if rest > self._done)
