"""The command line: each command is its own module, loaded only when it is used.

A command's module reads options, calls the code that does the work, and prints the result.
"""

from __future__ import annotations

from conformance.app.cli.main import main

__all__ = ["main"]
