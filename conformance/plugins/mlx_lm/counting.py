"""What mlx-lm's generator says of its work, beside the time that its calls took."""

from __future__ import annotations

import contextlib
from typing import Any

from conformance.core.counted import Clock, Counted, Pace


class Counting(Clock):
    """The statistics of a generator from now on, by ``BatchGenerator.stats`` of 0.32 and later."""

    def __init__(self, generator: Any) -> None:
        super().__init__()
        self._window = contextlib.ExitStack()
        window = generator.stats()
        # Releases before gave the counts so far, and others before these counted no steps.
        known = hasattr(window, "__enter__")
        self._stats: Any = self._window.enter_context(window) if known else None

    def counted(self) -> Counted | None:
        """The statistics until now, which end with it; ``None`` of a release without them."""
        self._window.close()
        stats = self._stats
        if stats is None or not hasattr(stats, "decode_time"):
            return None
        return Counted(
            Pace(stats.prompt_tokens, stats.prompt_time, stats.prompt_tps),
            Pace(stats.generation_tokens, stats.decode_time, stats.decode_tps),
            stats.peak_memory,
            self.seconds,
            last_left_out=True,  # mlx_lm/generate.py:1884 counts what PromptProcessingBatch feeds
        )
