"""The command line. Each command is a module of its own, loaded only when it is used."""

from __future__ import annotations

from conformance.app.cli.main import main

__all__ = ["main"]
