"""The source of random choices: a random generator, or Hypothesis."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypeVar

import numpy as np

T = TypeVar("T")


class Choices(Protocol):
    """Makes choices. Each method's first outcome is the simplest."""

    def integer(self, low: int, high: int) -> int:
        """``low`` to ``high``, inclusive."""
        ...

    def flag(self) -> bool:
        """``False`` or ``True``."""
        ...

    def pick(self, options: Sequence[T]) -> T:
        """One of the options."""
        ...


class Seeded:
    """Choices of a random generator."""

    def __init__(self, *seed: int) -> None:
        self._rng = np.random.default_rng(seed)

    def integer(self, low: int, high: int) -> int:
        """See ``Choices.integer``."""
        return int(self._rng.integers(low, high + 1))

    def flag(self) -> bool:
        """See ``Choices.flag``."""
        return bool(self._rng.random() < 0.5)

    def pick(self, options: Sequence[T]) -> T:
        """See ``Choices.pick``."""
        return options[self.integer(0, len(options) - 1)]
