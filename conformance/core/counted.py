"""What an engine says that it did: the counts and times that its users are shown."""

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
        """Around a call."""
        start = time.perf_counter()
        try:
            yield
        finally:
            self.seconds += time.perf_counter() - start


@dataclass(frozen=True)
class Pace:
    """So many tokens in so many seconds, and the tokens per second as the engine gives them.

    ``None`` where it does not say.
    """

    tokens: int
    seconds: float | None = None
    rate: float | None = None


@dataclass(frozen=True)
class PromptCount:
    """What is reported of one request when its prefill ends.

    Attributes:
        prompt: its tokens, those reused included.
        reused: of these, the tokens whose cache was kept from an earlier request.
    """

    request_id: str
    prompt: Pace
    reused: int = 0


@dataclass(frozen=True)
class Counted:
    """The statistics of a run.

    Attributes:
        prompts: of all prefills.
        outputs: of all output tokens.
        peak: the most memory in use, in GB of 10**9 bytes.
        wall: seconds spent in the engine, by our clock.
        ended: each report of a prefill's end, in order; ``None`` if there are no such reports.
        last_left_out: whether the last token of a prompt is not among those of prefills, as it is
            fed in a decode step.
        steps: of decoding, each of which gives tokens; ``None`` where it does not say.
    """

    prompts: Pace
    outputs: Pace
    peak: float
    wall: float
    ended: tuple[PromptCount, ...] | None = None
    last_left_out: bool = False
    steps: int | None = None
