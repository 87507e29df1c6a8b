"""Reports each cause once, however many seeds and machines found it."""

from __future__ import annotations

import msgspec

from conformance.checks.expectations.entries import NUMERIC
from conformance.core.verdict import Verdict
from conformance.tools.explore.results import Discovery, Explored


class Causes:
    """The causes seen so far."""

    def __init__(self) -> None:
        self._seen: set[tuple[str, ...]] = set()

    def new(self, found: Explored) -> Explored:
        """Remove discoveries with a cause that was seen before, and count them."""
        kept = []
        for discovery in found.discoveries:
            if (cause := cause_of(discovery)) not in self._seen:
                self._seen.add(cause)
                kept.append(discovery)
        again = found.again + len(found.discoveries) - len(kept)
        return msgspec.structs.replace(found, discoveries=tuple(kept), again=again)


def cause_of(found: Discovery) -> tuple[str, ...]:
    """The common properties of discoveries with one cause, as in ``results.signature``.

    All wrong numbers of a family count as one cause; a crash is identified by its exception, any
    other by its check.
    """
    kind: tuple[str, ...] = (found.verdict.value, found.check)
    if found.verdict in NUMERIC:
        kind = ("numbers",)
    elif found.verdict is Verdict.CRASH:
        kind = ("crash", found.what.partition(":")[0])
    return (found.engine, found.family, found.dtype, *kind)
