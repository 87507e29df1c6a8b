"""Numbers as option values: finite and within sensible bounds."""

from __future__ import annotations

import math
from typing import Any

import click

MOST_JOBS = 1024
SEED = click.IntRange(min=0, max=2**32 - 1)

_DAYS = 10


class Finite(click.FloatRange):
    """A number within a range; refuses ``inf`` and ``nan``, which Python would accept."""

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """The number."""
        found: float = super().convert(value, param, ctx)
        if not math.isfinite(found):
            self.fail(f"{value!s} is no finite number", param, ctx)
        return found


SECONDS = Finite(min=0, max=_DAYS * 86400)
MINUTES = Finite(min=0, max=_DAYS * 1440, min_open=True)
GIGABYTES = Finite(min=0, max=1_000_000)
FACTOR = Finite(min=1, max=1_000_000_000, min_open=True)
