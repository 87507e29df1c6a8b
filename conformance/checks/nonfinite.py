"""NaN and infinity in logprobs.

Minus infinity is allowed: it stands for a masked token, and if the oracle has none there, the
forced check finds an infinite difference.
"""

from __future__ import annotations

import numpy as np

from conformance.checks.play import Play
from conformance.core.verdict import Finding, Verdict


def check_nonfinite(play: Play) -> list[Finding]:
    """``nan`` for each request with NaN or plus infinity in its logprobs, at its first step."""
    findings = []
    for trace in play.traces:
        for request in play.schedule.requests:
            for step, event in enumerate(trace.events(request.request_id)):
                rows = event.logprobs if event.logprobs is not None else event.token_logprob
                if rows is None or not _bad(np.asarray(rows)):
                    continue
                findings.append(
                    Finding(
                        Verdict.NAN,
                        "nonfinite",
                        f"logprobs hold {_describe(np.asarray(rows))}",
                        schedule=play.schedule.name,
                        mode=trace.mode,
                        request_id=request.request_id,
                        step=step,
                        row=play.row(trace, request.request_id, step),
                        expected="finite logprobs",
                        got=_describe(np.asarray(rows)),
                        cause="a padded or unwritten position took part in a sum",
                    )
                )
                break
    return findings


def _bad(rows: np.ndarray) -> bool:
    # NaN and +inf survive a maximum; -inf only if all values are.
    return not rows.max() < np.inf or bool(rows.max() == -np.inf)


def _describe(rows: np.ndarray) -> str:
    return f"{int(np.isnan(rows).sum())} NaN and {int(np.isposinf(rows).sum())} +inf of {rows.size}"
