"""What mlx-vlm's generator says of its work, beside the time that its calls took."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from conformance.core.counted import Clock, Counted, Pace, PromptCount


class Counting(Clock):
    """Measures the calls of a generator and collects what it reports of prompts."""

    def __init__(self) -> None:
        super().__init__()
        self._ended: list[PromptCount] = []

    def add(self, progress: Iterable[Any], names: Mapping[int, str]) -> None:
        """The reports of a step; releases before 0.6 make other ones or none."""
        for report in progress:
            if hasattr(report, "prompt_tps"):
                name = names.get(report.uid, f"unknown uid {report.uid}")
                pace = Pace(report.prompt_tokens, report.prompt_time, report.prompt_tps)
                self._ended.append(PromptCount(name, pace, getattr(report, "cached_tokens", 0)))

    def counted(self, stats: Any, *, reported: bool) -> Counted:
        """The generator's ``stats()`` with these.

        Args:
            reported: whether its steps report the end of prefills.
        """
        return counted(stats, self.seconds, tuple(self._ended) if reported else None)


def counted(stats: Any, wall: float, ended: tuple[PromptCount, ...] | None = None) -> Counted:
    """``BatchStats`` of the library; it gives a rate of 0 where it did not measure decoding."""
    timed = bool(stats.generation_time)
    return Counted(
        Pace(stats.prompt_tokens, stats.prompt_time, stats.prompt_tps),
        Pace(
            stats.generation_tokens,
            stats.generation_time if timed else None,
            stats.generation_tps if timed else None,
        ),
        stats.peak_memory,
        wall,
        ended,
    )
