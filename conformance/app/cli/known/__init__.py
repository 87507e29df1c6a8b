"""``conformance known``: keep the known defects up to date with a library's releases.

``tools/releases/`` installs, runs and sorts; ``conformance show defects`` lists the defects.
"""

from __future__ import annotations

from conformance.app.cli.lazy_group import LazyGroup

command = LazyGroup(
    "known",
    package=__name__,
    sections={
        "Commands": {
            "lock": "Play or search the smallest schedule of each.",
            "refresh": "Sort the known defects by what a new release shows.",
        }
    },
    help="Keep the known defects up to date with a library's releases.",
)
