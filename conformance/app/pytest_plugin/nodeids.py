"""Node ids of the suite: pytest's names for cases, here and in workers."""

from __future__ import annotations

import re

SUITE_NODE = "conformance.suite.cases"
GOLDEN_NODE = "conformance.suite.goldens"

_GOLDEN = re.compile(re.escape(GOLDEN_NODE) + r"::golden\[([^/\]]+/[^/\]]+)\]")


def case_of(nodeid: str) -> str | None:
    """The case id within a node id, to which xdist may have added a group; ``None`` without one."""
    node, _, name = nodeid.partition("::")
    case = name.partition("@")[0]
    return case if node == SUITE_NODE and case.count("/") == 4 else None


def golden_of(nodeid: str) -> str | None:
    """Library and family of a golden's node id, ``mlx_lm/llama``; ``None`` for other node ids."""
    found = _GOLDEN.match(nodeid)
    return found[1] if found else None
