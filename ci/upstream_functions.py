"""Writes ``expectations/functions.json``: the upstream functions of each known defect.

Run it with the newest release that the entries name installed: ``python ci/upstream_functions.py``.
"""

from __future__ import annotations

import importlib.metadata
import json
import sys

import msgspec

from conformance.checks.expectations import Defect, load_expectations
from conformance.checks.expectations.bound_places import bound
from conformance.checks.expectations.loading import OWN
from conformance.checks.expectations.same_code import FILE
from conformance.core.library_source import source_of


def main() -> int:
    """Write the file; return 1 if no entry names the installed release."""
    entries = load_expectations().defects
    other = sorted({entry.package for entry in entries if not _names_installed(entry)})
    if other:
        print(f"install a release of {', '.join(other)} that the entries name, not another one")
        return 1
    found = {entry.id: bound(entry.where) for entry in entries}
    with_functions = {name: functions for name, functions in found.items() if functions}
    data = json.dumps(msgspec.to_builtins(with_functions), indent=1, sort_keys=True)
    (OWN / FILE).write_text(data + "\n")
    print(f"{FILE}: functions of {len(with_functions)} of {len(entries)} known defects")
    print("without a function:", ", ".join(found.keys() - with_functions) or "none")
    return 0


def _names_installed(entry: Defect) -> bool:
    version = importlib.metadata.version(entry.package)
    return source_of(entry.package) is None and entry.in_release(version)


if __name__ == "__main__":
    sys.exit(main())
