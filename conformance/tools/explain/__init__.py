"""Why a case fails: which ingredients it needs, where it begins, and what it is like.

Here a case is played again, on purpose: everything else to the right of the runner works on what
was recorded. See ``docs/explain.md``.
"""

from __future__ import annotations

from conformance.report.explanation import Explanation, encode
from conformance.tools.explain.explaining import explain

__all__ = ["Explanation", "encode", "explain"]
