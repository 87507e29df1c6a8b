"""Goldens of exported schedules: each distinct request's single stream, once."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np

from conformance.core import numerics
from conformance.core.errors import GoldenError
from conformance.core.schedule import Request, Schedule
from conformance.reference.noise import THOROUGH_RUNS
from conformance.reference.oracle import Oracle
from conformance.tools.golden.format import Recorded


class Recorder:
    """Records requests of one family; equal ones with the same prefill chunking share a golden.

    Attributes:
        recorded: all recorded streams, by golden id.
        checked: how many of them were compared with the pass without a cache.
    """

    def __init__(self, oracle: Oracle, top: int) -> None:
        self._oracle = oracle
        self._top = top
        self._ids: dict[Any, str] = {}
        self.recorded: dict[str, Recorded] = {}
        self.checked = 0

    def record(self, schedule: Schedule, scenario: str) -> dict[str, str]:
        """The golden id of each request of a schedule; new requests are decoded as single streams.

        Raises:
            GoldenError: a logprob of a single stream is not finite, or the single stream disagrees
                with the pass without a cache: the oracle is not reliable.
        """
        ids: dict[str, str] = {}
        keys: dict[Any, str] = {}
        new: dict[str, Recorded] = {}
        for request in schedule.requests:
            key = self._key(request, schedule)
            name = self._ids.get(key) or keys.get(key)
            if name is None:
                name = f"{scenario}/{schedule.name}/{request.request_id}"
                new[name] = self._recorded(request, schedule, name, ids)
                keys[key] = name
            ids[request.request_id] = name
        self._ids |= keys
        self.recorded |= new
        return ids

    def _recorded(
        self, request: Request, schedule: Schedule, name: str, ids: dict[str, str]
    ) -> Recorded:
        options = schedule.options
        stream = self._oracle.solo(request, options, schedule)
        assert stream.logprobs is not None
        steps = len(stream.tokens)
        top = [self._most_likely(row) for row in stream.logprobs]
        if any(len(step) < 2 for step in top):
            raise GoldenError(f"{name}: the single stream's logprobs are not finite")
        check = self._oracle.check_stateless(request, options)
        if check is not None and not check.deviation.within_noise:
            raise GoldenError(f"{name}: the single stream disagrees with the pass without a cache")
        self.checked += check is not None
        # From many runs: no model is available to measure more when a trace is judged.
        noise = self._oracle.envelope(request, options, schedule, runs=THOROUGH_RUNS)
        source = request.continues
        if source is not None:
            source = msgspec.structs.replace(source, request_id=ids[source.request_id])
        return Recorded(
            msgspec.structs.replace(request, request_id=name, continues=source),
            stream.tokens,
            tuple(_floats(numerics.margins(stream.logprobs))),
            tuple(_floats(noise.top[:steps])),
            tuple(top),
        )

    def _most_likely(self, row: np.ndarray) -> tuple[tuple[int, float], ...]:
        """Finite logprobs of the most likely tokens, the best first; none if one is NaN."""
        if np.isnan(row).any():
            return ()
        order = np.argsort(-row, kind="stable")[: self._top]
        pairs = zip(order.tolist(), _floats(row[order]), strict=True)
        return tuple((token, value) for token, value in pairs if np.isfinite(value))

    def _key(self, request: Request, schedule: Schedule) -> Any:
        """A key that is equal for requests with the same single stream."""
        plain = msgspec.structs.replace(request, request_id="")
        if request.continues is not None:  # its history belongs to another request
            return (schedule.name, msgspec.json.encode(schedule), msgspec.json.encode(request))
        size = min(schedule.options.prefill_step_size, max(len(request.prompt) - 1, 1))
        return (msgspec.json.encode(plain), size)


def _floats(values: np.ndarray) -> list[float]:
    """The shortest decimals that parse to the same float32."""
    return [float(str(value)) for value in values.astype(np.float32)]
