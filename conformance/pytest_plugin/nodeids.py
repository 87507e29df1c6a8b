"""Node ids of the suite: what pytest calls a case, here and in workers."""

from __future__ import annotations

SUITE_NODE = "conformance.suite.cases"


def case_of(nodeid: str) -> str | None:
    """The case id within a node id, which xdist may have given a group; ``None`` if it has none."""
    node, _, name = nodeid.partition("::")
    case = name.partition("@")[0]
    return case if node == SUITE_NODE and case.count("/") == 4 else None
