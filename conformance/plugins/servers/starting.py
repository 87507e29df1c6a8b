"""Starts a server of a library with faults or mends in it; runs in the server's own process.

Arguments: a folder for what is counted, how many patches there are, for each its ``module:name``,
then the server's module and its own arguments. Without patches the module is run as it is.
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
    """Counts in a file, too, a byte for each effect: it outlives the process."""

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
    """The patch of a fault or a mend at that place, or what is made by the function there."""
    module, _, name = place.partition(":")
    found = getattr(importlib.import_module(module), name)
    made: Injection = getattr(found, "inject", None) or getattr(found, "repair", None) or found
    return made.patch(hits) if isinstance(made, InServer) else made(hits)


if __name__ == "__main__":
    main()
