"""An engine's own statistics: the counts and times that its users see."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from dataclasses import dataclass


class Clock:
    """Adds up the seconds of calls."""

    def __init__(self) -> None:
        self.seconds = 0.0

    @contextlib.contextmanager
    def measured(self) -> Iterator[None]:
        """Context around a call."""
        start = time.perf_counter()
        try:
            yield
        finally:
            self.seconds += time.perf_counter() - start


@dataclass(frozen=True)
class Pace:
    """Tokens, seconds, and the tokens per second that the engine reports.

    ``None`` if it does not report them.
    """

    tokens: int
    seconds: float | None = None
    rate: float | None = None


@dataclass(frozen=True)
class PromptCount:
    """The report about one request at the end of its prefill.

    Attributes:
        prompt: its tokens, including reused ones.
        reused: of these, the tokens whose cache was kept from an earlier request.
    """

    request_id: str
    prompt: Pace
    reused: int = 0


@dataclass(frozen=True)
class Counted:
    """The statistics of a run.

    Attributes:
        prompts: the rate of all prefills.
        outputs: the rate of all output tokens.
        peak: the most memory in use, in GB of 10**9 bytes.
        wall: seconds spent in the engine, by the runner's clock.
        ended: each report of a prefill's end, in order; ``None`` if there are no such reports.
        last_left_out: whether prefills do not count a prompt's last token, as it is fed in a decode
            step.
        steps: decoding steps, each of which gives tokens; ``None`` if not reported.
    """

    prompts: Pace
    outputs: Pace
    peak: float
    wall: float
    ended: tuple[PromptCount, ...] | None = None
    last_left_out: bool = False
    steps: int | None = None
