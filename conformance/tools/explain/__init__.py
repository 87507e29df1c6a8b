"""Why a case fails: the ingredients it needs, the first difference, and similar known defects.

The only part after the runner that plays a case again; checks and reports, which work on recorded
results, do not belong here. See ``docs/explain.md``.
"""

from __future__ import annotations

from conformance.report.explanation import Explanation, encode
from conformance.tools.explain.explaining import explain

__all__ = ["Explanation", "encode", "explain"]
