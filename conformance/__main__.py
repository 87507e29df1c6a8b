"""``python -m conformance`` is the ``conformance`` command."""

from conformance.app.cli import main

main()
