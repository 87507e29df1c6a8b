"""Known defects of functions, and the differences of properties that each explains."""

from __future__ import annotations

import re
from pathlib import Path

from conformance.checks.expectations import loading as expectations
from conformance.checks.expectations.entry_tables import FindingEntry, read_entries

# In a subfolder of expectations: in the folder itself it would be read as case expectations.
OWN = expectations.OWN / "functions" / "known.toml"


class FunctionDefect(FindingEntry, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One known defect of a function.

    Attributes:
        library: the library of the function.
        property: the property that shows the defect; empty if only the script does.
    """

    library: str
    property: str = ""

    def explains(self, library: str, name: str, problem: str) -> bool:
        """Whether the difference that a property found is this defect."""
        named = (self.library, self.property) == (library, name)
        return named and re.search(self.says, problem) is not None


def load_function_defects(path: Path = OWN) -> tuple[FunctionDefect, ...]:
    """The entries for the installed releases.

    Raises:
        ExpectationError: the file is not valid; the message names the entry.
    """
    return tuple(entry for entry in read_entries(path, FunctionDefect) if entry.active())
