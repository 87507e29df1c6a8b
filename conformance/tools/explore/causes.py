"""One cause is one finding, from however many seeds and machines it was found."""

from __future__ import annotations

import msgspec

from conformance.checks.expectations.entries import NUMERIC
from conformance.core.verdict import Verdict
from conformance.tools.explore.results import Discovery, Explored


class Causes:
    """Those that have been seen."""

    def __init__(self) -> None:
        self._seen: set[tuple[str, ...]] = set()

    def new(self, found: Explored) -> Explored:
        """What was found of causes that were not seen before; the others are counted."""
        kept = []
        for discovery in found.discoveries:
            if (cause := cause_of(discovery)) not in self._seen:
                self._seen.add(cause)
                kept.append(discovery)
        again = found.again + len(found.discoveries) - len(kept)
        return msgspec.structs.replace(found, discoveries=tuple(kept), again=again)


def cause_of(found: Discovery) -> tuple[str, ...]:
    """What discoveries of one cause have in common, as ``results.signature`` has it.

    Numbers of a family are one; a crash is known by its exception, anything else by its check.
    """
    kind: tuple[str, ...] = (found.verdict.value, found.check)
    if found.verdict in NUMERIC:
        kind = ("numbers",)
    elif found.verdict is Verdict.CRASH:
        kind = ("crash", found.what.partition(":")[0])
    return (found.engine, found.family, found.dtype, *kind)
