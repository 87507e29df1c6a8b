"""Known defects: which verdict a case must have, as the files of ``expectations/`` name them.

Strict on purpose: a defect that is mended, that changes its verdict, or that no case meets any more
fails the run until its entry is taken out. ``expectations/README.md`` shows an entry.
"""

from conformance.checks.expectations.entries import NUMERIC, Defect, Refusal
from conformance.checks.expectations.loading import load_expectations
from conformance.checks.expectations.rules import Expectations

__all__ = ["NUMERIC", "Defect", "Expectations", "Refusal", "load_expectations"]
