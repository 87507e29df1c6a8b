"""Streams of the thread that loaded the model."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import Any

import mlx.core as mx

from conformance.core.faults.base import Hits
from conformance.core.faults.patching import all_of, exchange
from conformance.plugins.mlx_lm.faults.tools import generate, mlx_lm_fault


@contextlib.contextmanager
def _stream_of_the_loading_thread(hits: Hits) -> Iterator[None]:
    loading, stream = threading.current_thread(), mx.new_stream(mx.default_device())

    def at_start(right: Callable[..., Any], _: Hits) -> Callable[..., Any]:
        def init(self: Any, *args: Any, **options: Any) -> None:
            right(self, *args, **options)
            self._stream = stream

        return init

    def at_step(right: Callable[..., Any], hits: Hits) -> Callable[..., Any]:
        def step(self: Any) -> Any:
            try:
                return right(self)
            except RuntimeError:
                if threading.current_thread() is not loading:
                    hits.hit()
                raise

        return step

    generator = generate.BatchGenerator
    both = all_of(exchange(generator, "__init__", at_start), exchange(generator, "next", at_step))
    with both(hits):
        yield


FAULTS = (
    mlx_lm_fault(
        name="C6.stream-of-another-thread",
        fault_class="threads",
        source="mlx-vlm #1055",
        summary="Decoding runs on a stream that only the thread which loaded the model has.",
        needs=(),
        kills=("threads",),
        where="crash:*generate.py*",
        inject=_stream_of_the_loading_thread,
        crash=True,
    ),
)
