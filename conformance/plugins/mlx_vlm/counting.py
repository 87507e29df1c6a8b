"""The statistics of mlx-vlm's generator, next to the measured time of its calls."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from conformance.core.counted import Clock, Counted, Pace, PromptCount


class Counting(Clock):
    """Measures the calls of a generator and collects its reports about prompts."""

    def __init__(self) -> None:
        super().__init__()
        self._ended: list[PromptCount] = []

    def add(self, progress: Iterable[Any], names: Mapping[int, str]) -> None:
        """Add the reports of a step; releases before 0.6 make different ones or none."""
        for report in progress:
            if hasattr(report, "prompt_tps"):
                name = names.get(report.uid, f"unknown uid {report.uid}")
                pace = Pace(report.prompt_tokens, report.prompt_time, report.prompt_tps)
                self._ended.append(PromptCount(name, pace, getattr(report, "cached_tokens", 0)))

    def counted(self, stats: Any, *, reported: bool) -> Counted:
        """The generator's ``stats()`` together with the collected reports.

        Args:
            reported: whether the generator's steps report the end of prefills.
        """
        return counted(stats, self.seconds, tuple(self._ended) if reported else None)


def counted(stats: Any, wall: float, ended: tuple[PromptCount, ...] | None = None) -> Counted:
    """The counts of the library's ``BatchStats``, whose rate is 0 if it measured no decoding."""
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
