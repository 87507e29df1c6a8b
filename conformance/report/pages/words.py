"""Texts of the pages: the meanings of verdicts, and safe forms of unsafe text."""

from __future__ import annotations

import re
from collections.abc import Mapping

from conformance.core.verdict import Verdict

# Control characters except tab and newline, direction marks, zero-width characters, surrogates.
_UNSEEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ud800-\udfff]"
)

MEANINGS: Mapping[Verdict, str] = {
    Verdict.EXACT: "all tokens equal, logprob difference within noise",
    Verdict.TIE: "tokens differ only where the single stream's two best tokens are within noise",
    Verdict.POLICY: "the library's own single stream quantizes otherwise than a batch of one",
    Verdict.UNSUPPORTED: "the library itself refuses to do this",
    Verdict.VACUOUS: "the scenario did not reach what it is named for: the case proved nothing",
    Verdict.COST: "right, and took more than a contract allows: positions, rows, reads, bytes",
    Verdict.DRIFT: "tokens equal, logprobs outside noise",
    Verdict.DIVERGED: "tokens differ where that cannot be rounding",
    Verdict.UNSTABLE: "the same run twice gave different numbers",
    Verdict.LEAK: "memory or slots not given back, or work done for removed rows",
    Verdict.PROTOCOL: "lost, extra or duplicated tokens, wrong finish reason, invalid input "
    "accepted",
    Verdict.NAN: "NaN or Inf in the output",
    Verdict.ORACLE: "the single stream disagrees with the pass without a cache",
    Verdict.HANG: "the bound on steps, or the time limit, was reached",
    Verdict.CRASH: "an exception, or a crash of the process",
}


def brief(text: str, most: int) -> str:
    """``text`` on one line, with at most ``most`` characters."""
    line = " ".join(text.split())
    return line if len(line) <= most else line[: most - 3] + "..."


def shown(text: str) -> str:
    """``text`` with invisible and direction-changing characters as their escapes in JSON."""
    return _UNSEEN.sub(lambda found: f"\\u{ord(found[0]):04x}", text)
