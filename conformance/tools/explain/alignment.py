"""Identifies, by its tokens, the request and the positions of each row of a pass.

Of an engine it needs only what every engine reports to the runner.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from conformance.core.schedule import Stage
from conformance.core.trace import Step


@dataclass(frozen=True)
class Span:
    """A row of a pass: columns ``first`` to ``first + count - 1`` are its request's next tokens.

    ``position`` is the index of the first of these tokens in the request's own sequence; ``begins``
    is true in the request's first pass of the run.
    """

    row: int
    request_id: str
    first: int
    count: int
    position: int
    begins: bool = field(default=False, compare=False)


@dataclass(frozen=True)
class Strange:
    """A row that was fed tokens other than the next ones of its request."""

    row: int
    request_id: str
    position: int
    expected: tuple[int, ...]
    got: tuple[int, ...]


class Alignment:
    """Follows each request through the passes of a run.

    Args:
        sequences: all tokens of each request, including its history.
        begun: how many tokens of each request the caches hold at its start; one fewer is accepted.
    """

    def __init__(
        self, sequences: Mapping[str, tuple[int, ...]], begun: Mapping[str, int] | None = None
    ) -> None:
        self._sequences = {name: np.array(tokens) for name, tokens in sequences.items()}
        self._begun = dict(begun or {})
        self.done: dict[str, int] = {}
        """The number of tokens of each request in the caches."""
        self._step: int | None = None
        self._moved: set[str] = set()
        self._drafted: Mapping[str, int] = {}
        self._places: dict[str, int] = {}

    def rows(
        self, tokens: np.ndarray, step: Step | None = None
    ) -> tuple[tuple[Span, ...], tuple[Strange, ...]]:
        """The rows of a pass over ``tokens`` ``[batch, length]``: fitting ones, then the others.

        Args:
            step: the step of the pass; ``None`` if the pass may belong to any request.
        """
        if step is not None and step.index != self._step:
            self._step, self._moved = step.index, set()
            self._drafted = step.output.drafted
        names = self._candidates(step)
        decoding = {row: name for name, row in step.rows.items()} if step is not None else {}
        # An engine with fixed slots computes rows that belong to nobody, whatever is in them: then
        # a decoding request is where the engine says that it is, and nowhere else.
        if len(tokens) > len(names) and tokens.shape[1] == 1:
            slots = {name: row for row, name in decoding.items() if row < len(tokens)}
        else:
            slots = {}
        spans = self._fitting(tokens, names, decoding, slots)
        strange = self._unfitting(tokens, spans, step, decoding, slotted=bool(slots))
        for span in spans:
            self.done[span.request_id] = span.position + span.count
            self._moved.add(span.request_id)
            self._places[span.request_id] = span.row
        return spans, strange

    def _candidates(self, step: Step | None) -> tuple[str, ...]:
        if step is None:
            return tuple(self._sequences)
        reused = step.output.reused
        self._begun |= {name: n for name, n in reused.items() if name in self._sequences}
        ended = (Stage.FINISHED, Stage.REMOVED)
        live = (name for name, stage in step.stages.items() if stage not in ended)
        return tuple(name for name in live if name in self._sequences)

    def _fitting(
        self,
        tokens: np.ndarray,
        names: Sequence[str],
        decoding: Mapping[int, str],
        slots: Mapping[str, int],
    ) -> tuple[Span, ...]:
        length = tokens.shape[1]
        found = []
        for row in range(len(tokens)):
            for order, name in enumerate(names):
                # Accepted drafts may be fed again, to the caches in their earlier state.
                if name in self._moved and name in self._drafted:
                    continue
                if slots.get(name, row) != row:
                    continue
                span = self._fit(tokens[row], row, name)
                if span is not None:
                    expected = length == 1 and decoding.get(row) == name
                    # A row decodes once in a step, so other requests are preferred afterwards.
                    again = name in self._moved and name in decoding.values()
                    moved = self._places.get(name) != row
                    found.append(
                        (-span.count, again, not expected, moved, abs(order - row), row, span)
                    )
        chosen: dict[int, Span] = {}
        taken: set[str] = set()
        for *_, row, span in sorted(found, key=lambda item: item[:-1]):
            if row not in chosen and span.request_id not in taken:
                chosen[row] = span
                taken.add(span.request_id)
        return tuple(chosen[row] for row in sorted(chosen))

    def _fit(self, row_tokens: np.ndarray, row: int, name: str) -> Span | None:
        """The longest run of the request's next tokens at the row's right or left end."""
        start = self.done.get(name)
        if start is None:
            begun = self._begun.get(name, 0)
            starts = sorted({begun, max(begun - 1, 0)}, reverse=True)
        else:
            starts = [start]
        sequence, length = self._sequences[name], len(row_tokens)
        best: Span | None = None
        for at in starts:
            for count in range(min(length, len(sequence) - at), 0, -1):
                piece = sequence[at : at + count]
                if best is not None and count <= best.count:
                    break
                for first in (length - count, 0):
                    if first and _fed_again(row_tokens[:first], sequence[:at]):
                        continue
                    if np.array_equal(row_tokens[first : first + count], piece):
                        best = Span(row, name, first, count, at, begins=start is None)
                        break
        return best

    def _unfitting(
        self,
        tokens: np.ndarray,
        spans: Sequence[Span],
        step: Step | None,
        decoding: Mapping[int, str],
        *,
        slotted: bool,
    ) -> tuple[Strange, ...]:
        """Rows whose tokens are not the next ones of any request, if their request is known."""
        if step is None:
            return ()
        rest = [row for row in range(len(tokens)) if row not in {s.row for s in spans}]
        aligned = {s.request_id for s in spans}
        tried = (self._wrong_piece(tokens[row], row, step, aligned) for row in rest)
        if wrong := tuple(one for one in tried if one is not None):
            return wrong
        decodes = tokens.shape[1] == 1
        if slotted or (decodes and len(decoding) == len(tokens)):
            owners = {row: decoding[row] for row in rest if row in decoding}
        else:
            worked = [n for n in step.output.processed if n in self._sequences]
            left = [n for n in worked if n not in aligned]
            owners = dict(zip(rest, left, strict=False)) if len(left) == len(rest) else {}
        found = []
        for row, name in owners.items():
            at = self.done.get(name, self._begun.get(name, 0))
            sequence = self._sequences.get(name)
            if sequence is None or name in aligned or at >= len(sequence):
                continue  # the row belongs to no request, or to one that has ended
            if name in self._moved and name in self._drafted:
                continue
            wanted = tuple(int(t) for t in sequence[at : at + tokens.shape[1]])
            found.append(Strange(row, name, at, wanted, tuple(int(t) for t in tokens[row])))
        return tuple(found)

    def _wrong_piece(
        self, row_tokens: np.ndarray, row: int, step: Step, aligned: Collection[str]
    ) -> Strange | None:
        """A row in the middle of a prompt that is fed a piece other than the next one.

        Drafts may be fed again, to the caches in their earlier state.
        """
        length = len(row_tokens)
        if length < 2 or step.output.drafted or len(set(row_tokens.tolist())) == 1:
            return None
        for name, at in self.done.items():
            sequence = self._sequences[name]
            if name in aligned or name not in step.output.processed or len(sequence) < length:
                continue
            pieces = np.lib.stride_tricks.sliding_window_view(sequence, length)
            if (pieces == row_tokens).all(axis=1).any():
                wanted = tuple(int(t) for t in sequence[at : at + length])
                return Strange(row, name, at, wanted, tuple(int(t) for t in row_tokens))
        return None


def _fed_again(before: np.ndarray, done: np.ndarray) -> bool:
    """Whether the columns before the tokens are the request's last tokens rather than padding."""
    return len(before) <= len(done) and np.array_equal(before, done[-len(before) :])
