"""``conformance known``: keep the known defects up to date with a library's releases.

``tools/releases/`` installs, runs and sorts; ``conformance show defects`` lists the defects.
"""

from __future__ import annotations

import click

from conformance.app.cli.lazy_group import LazyGroup


@click.group(
    "known",
    cls=LazyGroup,
    package=__name__,
    sections={
        "Commands": {
            "lock": "Play or search the smallest schedule of each.",
            "refresh": "Sort the known defects by what a new release shows.",
        }
    },
)
def command() -> None:
    """Keep the known defects up to date with a library's releases."""
