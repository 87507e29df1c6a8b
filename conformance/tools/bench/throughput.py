"""Tokens per second of engines that decode one library's families, side by side in one process."""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence

import msgspec

from conformance.core.schedule import Schedule
from conformance.core.verdict import CaseId
from conformance.reference.subject import Subject
from conformance.run.judging.judge import brief_for
from conformance.run.registry import Registry
from conformance.run.runner import play
from conformance.run.session import Session
from conformance.scenarios.build import text_request, together

ROWS = 8
# Tokens of each row: enough for decoding to take longer than prefill.
_OUTPUT = 32
_LENGTHS = (5, 7, 11, 13)
_ROUNDS = 5


class Throughput(msgspec.Struct, frozen=True):
    """The speed on a batch of ``rows`` requests; ``ratio`` is to the first engine's speed."""

    engine: str
    family: str
    rows: int
    tokens_per_second: float
    ratio: float


def measure_throughput(
    registry: Registry, engines: Sequence[str], family: str
) -> tuple[Throughput, ...]:
    """Let the engines decode the same batch in turn, and report each one's median round.

    Raises:
        ModelError: the family's model cannot be loaded.
    """
    session = Session(registry)
    subject = session.subject(CaseId(engines[0], family, "wide", "float32", 0))
    seconds: dict[str, list[float]] = {name: [] for name in engines}
    for turn in range(_ROUNDS + 1):
        for name in engines:
            spent = _time(registry, subject, name)
            seconds[name] += [spent] if turn else []  # the first round warms up
    speed = {n: ROWS * _OUTPUT / statistics.median(spent) for n, spent in seconds.items()}
    first = speed[engines[0]]
    return tuple(Throughput(n, family, ROWS, speed[n], speed[n] / first) for n in engines)


def _time(registry: Registry, subject: Subject, name: str) -> float:
    engine = registry.engines[name]
    brief = brief_for(subject, engine, 0)
    lengths = [_LENGTHS[i % len(_LENGTHS)] for i in range(ROWS)]
    rows = [text_request(brief, f"r{i}", n, max_tokens=_OUTPUT) for i, n in enumerate(lengths)]
    start = time.perf_counter()
    play(
        engine,
        subject.model_for(engine),
        Schedule("throughput", (together(*rows),)),
        meter=subject.meter,
    )
    return time.perf_counter() - start
