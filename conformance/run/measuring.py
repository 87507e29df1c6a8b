"""Measurements during a run besides model calls, as the schedule requests: memory, reads."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Mapping

from conformance.core.schedule import CYCLES, Weigh
from conformance.core.trace import Alive, Trace

# Measured after each step, including the graph behind the caches.
_EACH_STEP = (Weigh.GRAPH, Weigh.ALIVE)
# Steps between two measurements, if not every step is measured.
_SAMPLED = 10


def cycled(run: Callable[[], Trace]) -> Trace:
    """The trace of the last of many runs, with what each of them left; or of one that failed."""
    from conformance.backend import memory  # noqa: PLC0415

    left: list[Mapping[str, int]] = []
    with memory.only_new_objects(), memory.exact_buffers():
        for _ in range(CYCLES):
            trace = run()
            if trace.failure is not None or trace.out_of_steps:
                return trace
            del trace
            left.append(memory.left(recorded=False))
    return dataclasses.replace(run(), left=tuple(left))


# mlx is imported only where it is needed: judging a foreign trace needs no mlx.
class Measuring:
    """The measurements of one run."""

    def __init__(self, weigh: Weigh | None) -> None:
        self._weigh = weigh
        self._reads: list[str] | None = None
        self._taken = 0
        self._ended = 0

    @contextlib.contextmanager
    def on(self) -> Iterator[None]:
        """Context around all steps."""
        with contextlib.ExitStack() as stack:
            if self._weigh in (Weigh.ALIVE, Weigh.SAMPLED, Weigh.IDLE):
                from conformance.backend import memory  # noqa: PLC0415

                stack.enter_context(memory.only_new_objects())
                stack.enter_context(memory.exact_buffers())
            if self._weigh is Weigh.READS:
                from conformance.backend.host_reads import host_reads  # noqa: PLC0415

                self._reads = stack.enter_context(host_reads())
            yield

    def after(self, index: int) -> bool:
        """Whether memory is measured after that step."""
        sampled = self._weigh is Weigh.SAMPLED and index % _SAMPLED == 0
        return sampled or self._weigh in _EACH_STEP

    def alive(self, index: int, cache_bytes: int) -> Alive | None:
        """The objects alive after that step."""
        if self._weigh is Weigh.GRAPH or not self.after(index):
            return None
        from conformance.backend.memory import alive  # noqa: PLC0415

        return alive(cache_bytes)

    def idle(self, ended: int) -> bool:
        """Whether counts are due: no request is left, and more have ended than before."""
        due = self._weigh is Weigh.IDLE and ended > self._ended
        self._ended = ended if due else self._ended
        return due

    def left(self) -> Mapping[str, int]:
        """Counts of what is alive beside the run's record."""
        from conformance.backend.memory import left  # noqa: PLC0415

        return left(recorded=True)

    def reads(self) -> tuple[str, ...] | None:
        """The host reads since the last call; ``None`` if they are not counted."""
        if self._reads is None:
            return None
        new = tuple(self._reads[self._taken :])
        self._taken = len(self._reads)
        return new
