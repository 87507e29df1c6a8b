"""``conformance new``: add a family or an engine.

``tools/new_family/`` makes tiny families, ``tools/new_engine/`` an engine's package.
"""

from __future__ import annotations

from conformance.app.cli.lazy_group import LazyGroup

command = LazyGroup(
    "new",
    package=__name__,
    sections={
        "Commands": {
            "family": "Make a family of a new model and prove it.",
            "engine": "Write a package with an engine of your own.",
        }
    },
    help="Add something of your own.",
)
