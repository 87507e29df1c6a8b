"""What logits processors are given, held to the tokens that the engine reports for the row."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

import mlx.core as mx
import numpy as np

from conformance.backend.sampling import ProcessorFn
from conformance.core.trace import Claim, TokenEvent

_SHOWN = 8  # tokens in a message


class GivenDtype:
    """A processor that changes nothing and keeps the dtype of the logits that it is given."""

    def __init__(self) -> None:
        self.dtype = ""

    def __call__(self, tokens: mx.array, logits: mx.array) -> mx.array:  # noqa: ARG002 - as all
        """Logits ``[1, vocab]`` in and out."""
        self.dtype = str(logits.dtype)
        return logits


class _Recorded:
    """A processor, of a row or of rows that share it, which keeps what it is given."""

    def __init__(self, processor: ProcessorFn) -> None:
        self._processor = processor
        self._calls: list[mx.array] = []
        self._given: set[tuple[int, ...]] = set()
        self.dtypes: dict[str, None] = {}

    def __call__(self, tokens: mx.array, logits: mx.array) -> mx.array:
        """Logits ``[1, vocab]`` in and out; ``tokens`` are the row's, with the prompt."""
        self._calls.append(tokens)
        self.dtypes[str(logits.dtype)] = None
        return self._processor(tokens, logits)

    def given(self) -> set[tuple[int, ...]]:
        self._given |= {tuple(np.array(t).reshape(-1).tolist()) for t in self._calls}
        self._calls.clear()
        return self._given


@dataclass(frozen=True)
class _Row:
    processor: _Recorded
    prompt: tuple[int, ...]
    chosen: list[int] = field(default_factory=list)

    def claims(self) -> Iterable[Claim]:
        given = self.processor.given()
        wanted = [(*self.prompt, *self.chosen[:step]) for step in range(len(self.chosen))]
        lacking = next((tokens for tokens in wanted if tokens not in given), None)
        got = min(given, key=lambda t: abs(len(t) - len(lacking or t)), default=())
        cause = "the history of a row is another row's, or lacks a part of the prompt"
        yield _claim(
            "the row's tokens", _short(got), _short(lacking or got), cause, lacking is None
        )
        if dtypes := tuple(self.processor.dtypes):
            cause = "the logits of some rows or steps are cast before they are processed"
            said = ", ".join(dtypes)
            one = len(dtypes) == 1
            made = _claim("logits of one dtype", said, dtypes[0], cause, one)
            yield replace(made, dtype=said if one else "")


class RecordedProcessors:
    """The first processor of each row of an engine, recorded.

    Reading the tokens that it was given computes them, which would hide an engine that never does:
    they are read when the row has left.
    """

    def __init__(self) -> None:
        self._rows: dict[str, _Row] = {}

    def recorded(self, processors: Sequence[ProcessorFn]) -> list[ProcessorFn]:
        """The processors; the first keeps what it is given."""
        return [one if at else _Recorded(one) for at, one in enumerate(processors)]

    def add(self, name: str, processors: Sequence[ProcessorFn], prompt: Sequence[int]) -> None:
        """Expect a row with these processors, which are recorded ones, and this prompt.

        Args:
            prompt: with the tokens that it continues.
        """
        for first in processors[:1]:
            if isinstance(first, _Recorded):
                self._rows[name] = _Row(first, tuple(prompt))

    def claims(self, events: Iterable[TokenEvent]) -> list[Claim]:
        """For each row that ends with one of the events, the claims about all of its steps."""
        made: list[Claim] = []
        for event in events:
            if (row := self._rows.get(event.request_id)) is not None:
                row.chosen.append(event.token)
                if event.finish_reason is not None:
                    made += self.removed(event.request_id)
        return made

    def removed(self, name: str) -> list[Claim]:
        """The claims about a row that leaves."""
        row = self._rows.pop(name, None)
        return list(row.claims()) if row is not None and row.chosen else []


def _claim(what: str, got: str, expected: str, cause: str, holds: bool) -> Claim:  # noqa: FBT001
    return Claim(
        f"{what}, for logits processors",
        got,
        expected,
        holds,
        cause=cause,
        sentence=f"a logits processor is not given {what}",
        drift=True,
    )


def _short(tokens: tuple[int, ...]) -> str:
    """The number of tokens, and the last of them."""
    return f"{len(tokens)} tokens that end in {list(tokens[-_SHOWN:])}"
