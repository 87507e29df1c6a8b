"""``conformance audit``: whether the checks detect defects, and the cost of a run.

``tools/`` has the trials and measurements; this package has the options and tables.
"""

from __future__ import annotations

import click

from conformance.app.cli.lazy_group import Lazy, LazyGroup


@click.group(
    "audit",
    cls=LazyGroup,
    sections={
        "Commands": {
            "power": Lazy(
                "conformance.app.cli.audit.power",
                "Put defects in; see which are caught.",
            ),
            "mutants": Lazy(
                "conformance.app.cli.audit.mutants",
                "Change a library's code a little; see which changes are noticed.",
            ),
            "tiers": Lazy(
                "conformance.app.cli.audit.tiers",
                "Show what the tiers play and catch, or choose them anew.",
            ),
            "calibrate": Lazy(
                "conformance.app.cli.audit.calibrate",
                "Measure how sensitive families are to small defects.",
            ),
            "caches": Lazy(
                "conformance.app.cli.audit.caches", "Test the operations of every batch cache."
            ),
            "functions": Lazy(
                "conformance.app.cli.audit.functions",
                "Hold functions that need no model to their definitions.",
            ),
            "bench": Lazy(
                "conformance.app.cli.audit.bench",
                "Measure coverage, overhead and speed-up of runs.",
            ),
        }
    },
)
def command() -> None:
    """Test the checks themselves, and measure the cost of a run."""
