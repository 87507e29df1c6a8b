"""What a user suffers from a known defect, from wrong tokens to wasted work."""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping

from conformance.core.verdict import Verdict


class Severity(enum.StrEnum):
    """The kinds of harm, the worst first."""

    TOKENS = "tokens"
    CRASH = "crash"
    DRIFT = "drift"
    REPLY = "reply"
    WASTE = "waste"
    HIDDEN = "hidden"

    @property
    def label(self) -> str:
        """The kind in words, as a heading."""
        return _LABELS[self]

    @property
    def weight(self) -> int:
        """How much one case with it counts, compared with others."""
        return _WEIGHTS[self]


_LABELS: Mapping[Severity, str] = {
    Severity.TOKENS: "wrong tokens",
    Severity.CRASH: "a crash or a hang",
    Severity.DRIFT: "wrong probabilities",
    Severity.REPLY: "wrong replies to requests and calls",
    Severity.WASTE: "wasted work and memory",
    Severity.HIDDEN: "hidden behind another defect",
}

_WEIGHTS: Mapping[Severity, int] = {
    Severity.TOKENS: 8,
    Severity.CRASH: 4,
    Severity.DRIFT: 2,
    Severity.REPLY: 2,
    Severity.WASTE: 1,
    Severity.HIDDEN: 0,
}

_VERDICTS: Mapping[Severity, frozenset[Verdict]] = {
    # An answer that depends on how its prompt was cut is as wrong as one that depends on a batch.
    Severity.TOKENS: frozenset({Verdict.DIVERGED, Verdict.NAN, Verdict.UNSTABLE, Verdict.ORACLE}),
    Severity.CRASH: frozenset({Verdict.CRASH, Verdict.HANG}),
    Severity.DRIFT: frozenset({Verdict.DRIFT, Verdict.POLICY}),
    Severity.REPLY: frozenset({Verdict.PROTOCOL}),
    Severity.WASTE: frozenset({Verdict.LEAK, Verdict.COST}),
}


def severity_of(verdicts: Iterable[Verdict]) -> Severity:
    """The worst of what these verdicts mean for a user; ``HIDDEN`` without any."""
    found = frozenset(verdicts)
    return next((kind for kind, own in _VERDICTS.items() if own & found), Severity.HIDDEN)
