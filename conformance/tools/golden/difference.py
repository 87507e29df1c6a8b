"""One difference from a golden, and the meaning of several together."""

from __future__ import annotations

import enum
from collections.abc import Collection
from dataclasses import dataclass

from conformance.core.verdict import Verdict


class Part(enum.StrEnum):
    """Which comparison failed."""

    REQUESTS = "requests"
    SINGLE = "single stream against golden"
    GOLDEN = "batched against golden"
    BATCH = "batched against single stream now"


@dataclass(frozen=True)
class Difference:
    """One failed comparison of one request.

    Attributes:
        text: what differs.
        engine: the engine that ran the batch; empty without a batch.
        schedule: the batch of the request.
        scenario: the rung that runs such a batch.
        verdict: of a case with this difference.
        known: the expectations' entries that explain it.
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

# Which comparisons differ: single stream and golden, batch and golden, batch and single stream now.
_MEANING = {
    (False, False, False): HOLDS,
    (True, True, False): "the library's output changed, single-stream and batched alike",
    (True, False, False): "the library's output changed, in a request that no batch holds",
    (True, False, True): "the single-stream output changed; the batch still gives the golden",
    (True, True, True): "the library's output changed, and the batch differs from it besides",
    (False, True, True): "the batch differs; the single stream still gives the golden",
    (False, True, False): "the batch differs from the golden, by less from the single stream",
    (False, False, True): "the batch differs from the single stream, by less from the golden",
}


def in_short(differences: Collection[Difference]) -> str:
    """Which of the comparisons failed, and what this means, in one line."""
    parts = {difference.part for difference in differences}
    if parts == {Part.REQUESTS}:
        return "the library makes other prompts than it did"
    return _MEANING[Part.SINGLE in parts, Part.GOLDEN in parts, Part.BATCH in parts]
