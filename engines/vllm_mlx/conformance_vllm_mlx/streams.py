"""The stream of each thread that drives an engine, as the package wants one."""

import threading

from vllm_mlx.mlx_streams import (
    bind_generation_streams,
    restore_generation_streams,
    snapshot_generation_streams,
)

_OWN = threading.local()


class Streams:
    """Points mlx-lm at the driving thread's stream, and back when the engine is closed.

    A thread's stream is made once: engines come and go, streams stay.
    """

    def __init__(self):
        self._before = snapshot_generation_streams()
        self._bound_to = None

    def bind(self):
        """To the calling thread, if that is another one than before."""
        if self._bound_to == threading.get_ident():
            return
        _OWN.stream = bind_generation_streams(stream=getattr(_OWN, "stream", None))
        self._bound_to = threading.get_ident()

    def restore(self):
        """What was before: the single streams are decoded on the main thread."""
        restore_generation_streams(self._before)
