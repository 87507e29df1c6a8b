"""What each request leaves in a server's process for ever: objects, arrays, threads, files."""

from __future__ import annotations

import os
import threading
from functools import partial
from typing import Any

from mlx_lm import server
from mlx_lm.generate import BatchGenerator

from conformance.core.faults.declaration import Hits
from conformance.core.faults.patching import Patch, after, before
from conformance.plugins.servers.planting import served_fault

_fault = partial(
    served_fault,
    engine="mlx_lm_server",
    fault_class="leak",
    source="issue trackers: memory of servers that grows by the hour",
    kills=("served_leaves/again",),
)


@_fault("S59.context-of-each-request")
def context_of_each_request(hits: Hits) -> Patch:
    """A list of all requests is kept, and nobody takes them out."""
    contexts: list[Any] = []

    def generate(found: Any, *_: Any, **__: Any) -> Any:
        hits.hit()
        contexts.append(found[0])
        return found

    return after(server.ResponseGenerator, "generate", generate)


@_fault("S60.caches-of-rows-that-left")
def caches_of_rows_that_left(hits: Hits) -> Patch:
    """The caches of a row whose client has left are put aside, and forgotten there."""
    aside: list[Any] = []

    def remove(self: Any, uids: Any, *_: Any, **__: Any) -> None:
        caches = self.extract_cache(uids)
        hits.hit_if(caches)
        aside.append(caches)

    return before(BatchGenerator, "remove", remove)


@_fault("S61.thread-of-each-request")
def thread_of_each_request(hits: Hits) -> Patch:
    """A thread that watches an answer waits for ever for the end that nobody sets."""

    def generate(*_: Any, **__: Any) -> None:
        hits.hit()
        threading.Thread(target=threading.Event().wait, daemon=True).start()

    return before(server.ResponseGenerator, "generate", generate)


@_fault("S62.file-of-each-request")
def file_of_each_request(hits: Hits) -> Patch:
    """A file that is opened for each answer stays open."""

    def generate(*_: Any, **__: Any) -> None:
        hits.hit()
        os.open(os.devnull, os.O_RDONLY)

    return before(server.ResponseGenerator, "generate", generate)
