"""Why a case fails: the ingredients it needs, the first difference, and similar known defects.

This is the only package after the runner that runs a case again. Checks and reports work on
recorded results and do not belong here. See ``docs/explain.md``.
"""

from __future__ import annotations

from conformance.report.explanation import Explanation
from conformance.tools.explain.explaining import explain

__all__ = ["Explanation", "explain"]
