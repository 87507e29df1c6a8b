"""The statistics of mlx-lm's generator, next to the measured time of its calls."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from conformance.core.counted import Clock, Counted, Pace


class Counting(Clock):
    """A generator's statistics from now on, from ``BatchGenerator.stats`` of 0.32 and later."""

    def __init__(self, generator: Any) -> None:
        super().__init__()
        self._window = contextlib.ExitStack()
        # Before 0.31.2 there is none, and the counts so far are returned.
        window: Any = generator.stats() if hasattr(generator, "stats") else None
        self._known = hasattr(window, "__enter__")
        self._stats: Any = self._window.enter_context(window) if self._known else None
        self._generator = generator
        # The last call's own window of statistics, and its duration.
        self.last: tuple[Any, float] = (None, 0.0)

    @contextlib.contextmanager
    def measured(self) -> Iterator[None]:
        """Measure a call in a window of its own, inside the outer one."""
        before, window = self.seconds, contextlib.nullcontext(None)
        try:
            with super().measured(), self._generator.stats() if self._known else window as stats:
                yield
        except ZeroDivisionError as error:
            # Up to 0.31.3, statistics divide by the zero time of a call that failed early.
            raise error.__context__ or error  # noqa: B904  (the call's own error, as it was)
        self.last = (stats, self.seconds - before)

    def counted(self) -> Counted | None:
        """End the window and return its statistics; ``None`` for releases without them."""
        self._window.close()
        steps = getattr(self._stats, "generation_steps", None)
        return counted(self._stats, self.seconds, steps)


def counted(stats: Any, wall: float, steps: int | None = None) -> Counted | None:
    """The counts of the library's ``BatchStats``; ``None`` for releases that count less."""
    if not hasattr(stats, "decode_time"):
        return None
    return Counted(
        Pace(stats.prompt_tokens, stats.prompt_time, stats.prompt_tps),
        Pace(stats.generation_tokens, stats.decode_time, stats.decode_tps),
        stats.peak_memory,
        wall,
        last_left_out=True,  # mlx_lm/generate.py:1884 counts what PromptProcessingBatch feeds
        steps=steps,
    )
