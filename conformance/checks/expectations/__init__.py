"""Known defects: reads the files of ``expectations/``, which name the verdict a case must have.

Strict on purpose: a defect that is fixed, that changes its verdict, or that no case meets any more
fails the run until its entry is removed. ``expectations/README.md`` shows an entry. Entries are
data in the folder ``expectations/`` at the top, not code here.
"""

from conformance.checks.expectations.entries import NUMERIC, Defect, Refusal
from conformance.checks.expectations.loading import load_expectations
from conformance.checks.expectations.rules import Expectations

__all__ = ["NUMERIC", "Defect", "Expectations", "Refusal", "load_expectations"]
