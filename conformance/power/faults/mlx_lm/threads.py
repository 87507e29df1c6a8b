"""Streams of the thread that loaded the model."""

from __future__ import annotations

import threading
from typing import Any

import mlx.core as mx

from conformance.core.faults.declaration import Hits
from conformance.core.faults.patching import Patch, Right, after, together, wrap
from conformance.power.faults.mlx_lm.tools import generate, mlx_lm_fault

_GENERATOR = generate.BatchGenerator


@mlx_lm_fault(
    "C6.stream-of-another-thread",
    fault_class="threads",
    source="mlx-vlm #1055",
    kills=("threads",),
    where="crash:*generate.py*",
    crash=True,
)
def stream_of_another_thread(hits: Hits) -> Patch:
    """Decoding runs on a stream that only the thread which loaded the model has."""
    loading, stream = threading.current_thread(), mx.new_stream(mx.default_device())

    def keep_stream(_: None, self: Any, *__: Any, **___: Any) -> None:
        self._stream = stream

    def step(right: Right, self: Any) -> Any:
        try:
            return right(self)
        except RuntimeError:
            hits.hit_if(threading.current_thread() is not loading)
            raise

    return together(after(_GENERATOR, "__init__", keep_stream), wrap(_GENERATOR, "next", step))
