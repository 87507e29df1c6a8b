"""Why a case fails: which ingredients it needs, where it begins, and what it is like.

Here a case is played again, on purpose: everything else to the right of the runner works on what
was recorded. See ``docs/explain.md``.
"""

from __future__ import annotations

from conformance.explain.explaining import explain
from conformance.explain.explanation import Explanation, encode

__all__ = ["Explanation", "encode", "explain"]
