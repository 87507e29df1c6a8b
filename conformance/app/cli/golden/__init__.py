"""``conformance golden``: each family's recorded single streams, in files that people review.

Format, gate and comparison are in ``tools/golden/``, vectors in ``tools/vectors/``.
"""

from __future__ import annotations

from conformance.app.cli.lazy_group import LazyGroup

command = LazyGroup(
    "golden",
    package=__name__,
    sections={
        "Commands": {
            "check": "Check goldens against the installed library.",
            "diff": "Show what differs between two goldens.",
            "update": "Make goldens anew: stage, show, accept.",
            "verify": "Check families against another implementation.",
            "export": "Write vectors for engines in any language.",
            "judge": "Judge the trace of such an engine.",
        }
    },
    help=(
        "Recorded single streams of each family, in files that people review.\n\n"
        "A golden is made from the oracle alone, after a second oracle agreed with it."
    ),
)
