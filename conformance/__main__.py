"""The ``conformance`` command, and ``python -m conformance``."""

from __future__ import annotations

import importlib

from conformance.core import first_signals


def main() -> None:
    """Entry point. Ends the process."""
    first_signals.leave_at_once()  # before the imports that take a moment
    importlib.import_module("conformance.app.cli").main()


if __name__ == "__main__":
    main()
