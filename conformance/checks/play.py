"""The input of a check."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from conformance.core.numerics import Envelope
from conformance.core.rounds import Round
from conformance.core.schedule import Schedule
from conformance.core.trace import Failure, Stream, Trace
from conformance.core.verdict import Finding


@dataclass(frozen=True)
class Play:
    """One schedule that was run, with the oracle's streams.

    Attributes:
        schedule: the schedule that was run.
        traces: the runs in order: forced (if the engine can be forced), free, and if these two are
            not bit-identical the first of them again; or only a free run that gave the oracle's
            tokens.
        want: the oracle's stream of each request.
        floor: the smallest noise to assume for a request.
        envelope: the measured noise of a request; the first call runs the model.
        wider: noise measurements of a request in so many steps, from few runs to many; used only
            as far as a difference requires (``numerics.settle``).
        full_logprobs: whether the engine declares logprobs over the whole vocabulary.
        staged: whether the engine reports the stage of each request.
        dtypes: for each request, the floating-point dtypes of its single stream's cache, layer by
            layer, as ``CachedLayer.dtypes``; empty if unknown.
        engine: the name of the engine.
        dtype: the model's.
        same_calls: whether a batch of one calls what a single stream calls. On a GPU, attention
            with an array as its mask is another kernel than attention that is causal by name.
        same_products: whether a row's products have the same bits beside others, in this dtype.
        plain: a run of an equal schedule without quantization, if there is one.
        alone: how often the host reads arrays in a step of the single stream; ``None`` if the
            schedule does not request it.
        drafted_alone: for a request of a trace, the rounds of runs of its own in which as many
            tokens of each draft are accepted: the plain run and, if the drafter proposes otherwise
            there, perturbed runs. Runs the model.
        word: the text of a token; empty if it has none that a user would know.
        logits_dtype: the dtype of the logits that processors are given in a single stream; empty if
            unknown. Runs the model.
        policy: for a batch of one with quantized caches, the logprobs of the library's own single
            stream at the oracle's tokens, or its failure; see ``Library.policy_stream``.
    """

    schedule: Schedule
    traces: tuple[Trace, ...]
    want: Mapping[str, Stream]
    floor: Callable[[str], Envelope]
    envelope: Callable[[str], Envelope]
    wider: Callable[[str, int], Sequence[Callable[[], Envelope]]]
    full_logprobs: bool = True
    staged: bool = True
    dtypes: Mapping[str, tuple[tuple[str, ...], ...]] = field(default_factory=dict)
    policy: np.ndarray | Failure | None = None
    engine: str = ""
    dtype: str = "float32"
    same_calls: bool = True
    same_products: bool = True
    plain: Trace | None = None
    alone: float | None = None
    drafted_alone: Callable[[Trace, str], tuple[tuple[Round, ...], ...]] = lambda *_: ()
    word: Callable[[int], str] = lambda _: ""
    logits_dtype: Callable[[], str] = lambda: ""

    def row(self, trace: Trace, request_id: str, step: int) -> int | None:
        """The batch row that the request's output token ``step`` came from, where known."""
        count = 0
        for item in trace.steps:
            for event in item.output.events:
                if event.request_id == request_id:
                    if count == step:
                        return item.rows.get(request_id)
                    count += 1
        return None


Check = Callable[[Play], list[Finding]]
