"""``conformance audit``: whether the checks detect defects, and the cost of a run.

``tools/`` has the trials and measurements; this package has the options and tables.
"""

from __future__ import annotations

from conformance.app.cli.lazy_group import LazyGroup

command = LazyGroup(
    "audit",
    package=__name__,
    sections={
        "Commands": {
            "power": "Put defects in; see which are caught.",
            "mutants": "Change a library's code a little; see which changes are noticed.",
            "tiers": "Show what the tiers play and catch, or choose them anew.",
            "calibrate": "Measure how sensitive families are to small defects.",
            "caches": "Test the operations of every batch cache.",
            "functions": "Hold functions that need no model to their definitions.",
            "bench": "Measure coverage, overhead and speed-up of runs.",
        }
    },
    help="Test the checks themselves, and measure the cost of a run.",
)
