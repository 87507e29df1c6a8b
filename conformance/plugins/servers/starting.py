"""Starts a library's server with faults or mends; runs in the server's own process.

Arguments: a folder for the counts, the number of patches, the ``module:name`` of each, then the
server's module and its own arguments. Without patches the module is run unchanged.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
from pathlib import Path

from conformance.core.faults.declaration import Hits, Injection
from conformance.core.faults.patching import Patch
from conformance.plugins.servers.planting import InServer, hits_file


class NotedHits(Hits):
    """Counts also in a file, a byte for each effect, which outlives the process."""

    def __init__(self, file: Path) -> None:
        super().__init__()
        self.file = file
        self._file = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    def hit(self) -> None:
        """See ``Hits.hit``."""
        super().hit()
        os.write(self._file, b".")

    def hit_if(self, condition: object) -> None:
        """See ``Hits.hit_if``."""
        if condition:
            self.hit()


def main() -> None:
    """Enter the patches, then run the server."""
    folder, count, *rest = sys.argv[1:]
    places, (module, *arguments) = rest[: int(count)], rest[int(count) :]
    server = importlib.import_module(module)
    with contextlib.ExitStack() as stack:
        for index, place in enumerate(places):
            stack.enter_context(patch_at(place, NotedHits(hits_file(Path(folder), index))))
        sys.argv = [module, *arguments]
        server.main()


def patch_at(place: str, hits: Hits) -> Patch:
    """The patch at a place: of a fault or a mend, or returned by the function there."""
    module, _, name = place.partition(":")
    found = getattr(importlib.import_module(module), name)
    made: Injection = getattr(found, "inject", None) or getattr(found, "repair", None) or found
    return made.patch(hits) if isinstance(made, InServer) else made(hits)


if __name__ == "__main__":
    main()
