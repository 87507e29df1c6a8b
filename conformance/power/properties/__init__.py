"""Properties of functions that need no model, by the library that has the functions.

Their base is in ``core/properties.py``; properties that both libraries share are in ``backend/``.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Sequence
from pathlib import Path

from conformance.checks.expectations import loading as expectations
from conformance.checks.expectations.entry_tables import FindingEntry, read_entries
from conformance.core.properties import Property
from conformance.core.unavailable import Unavailable
from conformance.run.registry import Registry

_OWN = ("mlx_lm", "mlx_vlm")


def properties_of(registry: Registry) -> dict[str, Sequence[Property | Unavailable]]:
    """The properties of each library: this project's own, and the plugins' properties."""
    found: dict[str, Sequence[Property | Unavailable]] = {}
    for name, library in registry.libraries.items():
        own = importlib.import_module(f"{__name__}.{name}").properties() if name in _OWN else ()
        found[name] = (*own, *library.properties())
    return found


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
