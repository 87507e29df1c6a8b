"""What a comparison with a golden says, and what several of them say together."""

from __future__ import annotations

import enum
from collections.abc import Collection
from dataclasses import dataclass

from conformance.core.verdict import Verdict


class Part(enum.StrEnum):
    """Which comparison failed."""

    ASKED = "requests"
    SINGLE = "single stream against golden"
    GOLDEN = "batched against golden"
    BATCH = "batched against single stream now"


@dataclass(frozen=True)
class Difference:
    """One comparison of one request that failed.

    Attributes:
        text: what differs, in words.
        engine: that made the batch; empty where there is none.
        schedule: the batch that the request stood in.
        scenario: the rung that plays such a batch.
        verdict: what a case with this difference would be called.
        known: the entries of the expectations that say so.
    """

    part: Part
    request_id: str
    text: str
    engine: str = ""
    schedule: str = ""
    scenario: str = ""
    verdict: Verdict = Verdict.DRIFT
    known: tuple[str, ...] = ()

    def __str__(self) -> str:
        where = f" ({self.engine}, batch {self.schedule})" if self.engine else ""
        known = f" [known: {', '.join(self.known)}]" if self.known else ""
        return f"{self.part}{where}: {self.text}{known}"


HOLDS = "the golden holds"

# Which of the single stream, the batch against the golden, and the batch against now differ.
_MEANING = {
    (False, False, False): HOLDS,
    (True, True, False): "the library changed its mind, alone and in the batch alike",
    (True, False, False): "the library changed its mind, in a request that no batch holds",
    (True, False, True): "the library changed its mind alone; the batch still gives the golden",
    (True, True, True): "the library changed its mind, and the batch differs from it besides",
    (False, True, True): "the batch differs; the library alone still gives the golden",
    (False, True, False): "the batch differs from the golden, by less from the library alone",
    (False, False, True): "the batch differs from the library alone, by less from the golden",
}


def in_short(differences: Collection[Difference]) -> str:
    """Which of the comparisons failed, and what that means, in one line."""
    parts = {difference.part for difference in differences}
    if parts == {Part.ASKED}:
        return "the library makes other prompts than it did"
    return _MEANING[Part.SINGLE in parts, Part.GOLDEN in parts, Part.BATCH in parts]
