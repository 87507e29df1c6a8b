"""Runs a server's module with a fault in it: ``python -m ...launch MODULE:NAME SERVER ARGS``."""

from __future__ import annotations

import importlib
import runpy
import sys


def main() -> None:
    """Enter the fault, and run the server as ``python -m`` does."""
    place, module, *arguments = sys.argv[1:]
    source, _, name = place.partition(":")
    sys.argv = [module, *arguments]
    with getattr(importlib.import_module(source), name)():
        runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
