"""The command line: each command is a module of its own, loaded only when it is used.

A module reads options, calls what does the work, and prints; it decides nothing.
"""

from __future__ import annotations

from conformance.app.cli.main import main

__all__ = ["main"]
