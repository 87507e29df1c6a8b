"""Known defects: reads the files of ``expectations/``, which name the verdict a case must have.

Strict on purpose: a defect that is fixed, changes its verdict, or no longer matches a case fails
the run until its entry is removed. ``expectations/README.md`` shows an entry. Entries are data in
the top-level folder ``expectations/``, not code here.
"""

from conformance.checks.expectations.entries import NUMERIC, Defect, Refusal
from conformance.checks.expectations.loading import load_expectations
from conformance.checks.expectations.rules import Expectations

__all__ = ["NUMERIC", "Defect", "Expectations", "Refusal", "load_expectations"]
