"""Choices that Hypothesis draws and shrinks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from hypothesis import strategies as st

T = TypeVar("T")


class Drawn:
    """Choices drawn from the data of a Hypothesis test.

    They are drawn directly from its choice sequence. A strategy for each would take ten times as
    long, and a schedule needs dozens of choices.
    """

    def __init__(self, data: st.DataObject) -> None:
        self._data = data.conjecture_data

    def integer(self, low: int, high: int) -> int:
        """See ``Choices.integer``."""
        return low if low == high else self._data.draw_integer(low, high, shrink_towards=low)

    def flag(self) -> bool:
        """See ``Choices.flag``."""
        return self._data.draw_boolean()

    def pick(self, options: Sequence[T]) -> T:
        """See ``Choices.pick``."""
        return options[self.integer(0, len(options) - 1)]
