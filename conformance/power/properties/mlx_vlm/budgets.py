"""Thinking budgets of the rows of mlx-vlm's ``BatchGenerator``, which no schedule sets."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import mlx.core as mx

from conformance.core.properties import Property
from conformance.plugins.mlx_vlm import compat

ar: Any = compat.part("generate.ar")

_VOCAB, _SLOTS, _JOINING = 64, 4, 2
# More than the longest answers need one after the other.
_MOST_STEPS = 60
_PARTS = ("BatchGenerator.*", "PromptProcessingBatch.*", "GenerationBatch.*", "_merge_prefill_*")


def budget_properties() -> list[Property]:
    """The property of the argument ``thinking_budget_criteria`` of ``insert``."""
    return [Property("budgets: of each row", "mlx_vlm/generate/ar.py", _PARTS, _budgets)]


class _Model:
    """Predicts the next number after each token."""

    layers = (None,)

    def __call__(self, tokens: mx.array, cache: Any, **_: Any) -> mx.array:
        fed = mx.zeros((len(tokens), 1, tokens.shape[1], 8))
        cache[0].update_and_fetch(fed, fed)
        best = (tokens[..., None] + 1) % _VOCAB
        return mx.where(mx.arange(_VOCAB) == best, 9.0, 0.0)


class _Budget:
    """Forces a token after so many tokens, as ``ThinkingBudgetCriteria`` does."""

    def __init__(self, after: int, forced: int) -> None:
        self._left, self._forced = after, forced

    def __call__(self, _: int) -> None:
        self._left -= 1

    def pop_forced_token_id(self) -> int | None:
        return None if self._left else self._forced


@dataclass(frozen=True)
class _Row:
    """A request: ``after`` so many tokens ``forced`` follows; never if ``after`` is 0."""

    prompt: tuple[int, ...]
    most: int
    after: int = 0
    forced: int = 0

    def answer(self) -> list[int]:
        """The tokens of the row alone."""
        found, token = [], self.prompt[-1] + 1
        for number in range(1, self.most + 1):
            found.append(token)
            token = self.forced if number == self.after else token + 1
        return found


_ROWS = (
    _Row((1, 2, 3), 9, after=2, forced=40),
    _Row((4,), 5),
    _Row((5, 6), 3, after=1, forced=30),
    _Row((7, 8, 9, 10), 12, after=6, forced=20),
    _Row((2, 11), 7),
    _Row((12, 13, 14), 8, after=3, forced=45),
    _Row((1, 15), 6, after=4, forced=50),
)


class _Stops:
    """A tokenizer's stop tokens: there are none."""

    def add_eos_token_ids(self, _: object) -> None:
        """Take no stop token."""

    def __call__(self, _: int) -> bool:
        """Whether a token ends an answer."""
        return False


def _budgets() -> Iterator[str]:
    """Each row is forced at its own step, while rows join, end and are removed."""
    tokenizer = SimpleNamespace(stopping_criteria=_Stops())
    for gone in (None, 0, 3):
        generator = ar.BatchGenerator(
            _Model(),
            SimpleNamespace(tokenizer=tokenizer),
            completion_batch_size=_SLOTS,
            prefill_batch_size=_JOINING,
        )
        budgets = [_Budget(row.after, row.forced) if row.after else None for row in _ROWS]
        numbers = generator.insert(
            [list(row.prompt) for row in _ROWS],
            [row.most for row in _ROWS],
            [{"inputs_embeds": mx.zeros((1, len(row.prompt), 8))} for row in _ROWS],
            thinking_budget_criteria=budgets,
        )
        answers: dict[int, list[int]] = {number: [] for number in numbers}
        for _ in range(_MOST_STEPS):
            for one in generator.next()[1]:
                answers[one.uid].append(one.token)
            if gone is not None and len(answers[numbers[gone]]) == 2:
                generator.remove(numbers[gone])
        generator.close()
        for place, (row, got) in enumerate(zip(_ROWS, answers.values(), strict=True)):
            want = row.answer()[: 2 if place == gone else row.most]
            if got != want:
                yield f"a row forced after {row.after} tokens gives {got}, not {want}"
