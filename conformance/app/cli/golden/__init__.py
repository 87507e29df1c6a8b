"""``conformance golden``: each family's single-stream output, as files that people review.

Format, gate and comparison are in ``tools/golden/``, vectors in ``tools/vectors/``.
"""

from __future__ import annotations

import click

from conformance.app.cli.lazy_group import Lazy, LazyGroup


@click.group(
    "golden",
    cls=LazyGroup,
    sections={
        "Commands": {
            "check": Lazy(
                "conformance.app.cli.golden.check", "Check goldens against the installed library."
            ),
            "diff": Lazy(
                "conformance.app.cli.golden.diff", "Show what differs between two goldens."
            ),
            "update": Lazy(
                "conformance.app.cli.golden.update", "Make goldens anew: stage, show, accept."
            ),
            "verify": Lazy(
                "conformance.app.cli.golden.verify",
                "Check families against another implementation.",
            ),
            "export": Lazy(
                "conformance.app.cli.golden.export", "Write vectors for engines in any language."
            ),
            "judge": Lazy("conformance.app.cli.golden.judge", "Judge the trace of such an engine."),
        }
    },
)
def command() -> None:
    """What each family's single stream gave, as files that people review.

    A golden is written from the oracle alone, and only after it agreed with a second one.
    """
