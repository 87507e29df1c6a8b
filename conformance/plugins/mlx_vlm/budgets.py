"""Thinking budgets in mlx-vlm: the library's own criteria, with token ids in place of markers."""

from __future__ import annotations

from typing import Any

from conformance.core.errors import Unsupported
from conformance.core.schedule import Budget
from conformance.plugins.mlx_vlm import compat

_START, _END = "start", "end"
# No token: the prompt has opened the thinking.
_NEVER = -1


def criteria_of(budget: Budget) -> Any:
    """A new ``ThinkingBudgetCriteria`` of one row.

    Raises:
        Unsupported: this release has no thinking budgets.
    """
    made = getattr(compat.part("utils"), "ThinkingBudgetCriteria", None)
    if made is None:
        raise Unsupported("this release of mlx-vlm has no thinking budgets")
    return made(
        _Markers(budget),
        budget.tokens,
        thinking_end_token=_END,
        thinking_start_token=_START,
        enable_thinking=True,
        prompt_preopens_thinking=not budget.later,
    )


class _Markers:
    """The part of a tokenizer that the criteria ask: the ids of what opens and closes thinking."""

    def __init__(self, budget: Budget) -> None:
        self._forced = budget.forced
        self._start = _NEVER if budget.opened_by is None else budget.opened_by

    def encode(self, text: str, *, add_special_tokens: bool) -> list[int]:
        """The ids of a marker, or of the line break before the one that ends."""
        del add_special_tokens
        return {_START: [self._start], _END: list(self._forced[-1:])}.get(
            text, list(self._forced[:-1])
        )
