"""What a check gets to see."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from conformance.core.numerics import Envelope
from conformance.core.schedule import Schedule
from conformance.core.trace import Failure, Stream, Trace
from conformance.core.verdict import Finding


@dataclass(frozen=True)
class Play:
    """One schedule as it was played, with the oracle's answers.

    Attributes:
        schedule: what was played.
        traces: the runs, in the order in which they were made: forced (where the engine can be
            forced), free, and where these two are not bit-identical the first of them once more;
            or only a free one that gave the oracle's tokens.
        want: the oracle's stream of each request.
        floor: the smallest noise to assume for a request.
        envelope: the measured noise of a request; costs model runs when first asked.
        wider: the noises of a request that can be measured, from few runs to many: as many as a
            difference asks for (``numerics.settle``).
        full_logprobs: whether the engine promises logprobs over the whole vocabulary.
        staged: whether the engine tells the stage of each request.
        policy: of a batch of one with quantized caches, the logprobs that the library's own single
            stream has at the oracle's tokens, or how it failed; see ``Library.policy_stream``.
    """

    schedule: Schedule
    traces: tuple[Trace, ...]
    want: Mapping[str, Stream]
    floor: Callable[[str], Envelope]
    envelope: Callable[[str], Envelope]
    wider: Callable[[str], Sequence[Callable[[], Envelope]]]
    full_logprobs: bool = True
    staged: bool = True
    policy: np.ndarray | Failure | None = None

    def row(self, trace: Trace, request_id: str, step: int) -> int | None:
        """The batch row that the request's output token ``step`` came from, where known."""
        seen = 0
        for item in trace.steps:
            for event in item.output.events:
                if event.request_id == request_id:
                    if seen == step:
                        return item.rows.get(request_id)
                    seen += 1
        return None


Check = Callable[[Play], list[Finding]]
