"""``conformance new``: what a user adds.

A tiny family is made in ``tools/new_family/``.
"""

from __future__ import annotations

import click

from conformance.app.cli.lazy_group import Lazy, LazyGroup


@click.group(
    "new",
    cls=LazyGroup,
    sections={
        "Commands": {
            "family": Lazy(
                "conformance.app.cli.new.family", "Make a family of a new model and prove it."
            ),
        }
    },
)
def command() -> None:
    """Add something of your own."""
