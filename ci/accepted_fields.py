"""Writes ``conformance/run/accepted_fields.json``: what the installed libraries accept.

A run lists what is not in there as new. Once you have read ``conformance show coverage`` for a new
release, run ``python ci/accepted_fields.py``.
"""

from __future__ import annotations

import json
from pathlib import Path

import conformance
from conformance.run.field_coverage import KNOWN_FILE
from conformance.run.registry import build_registry


def main() -> None:
    """Write the file for all engines that say what is accepted."""
    engines = build_registry().engines
    found = {name: accepted for name, kind in engines.items() if (accepted := kind.accepted())}
    file = Path(conformance.__file__).parent / "run" / KNOWN_FILE
    file.write_text(json.dumps(found, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    count = sum(len(names) for places in found.values() for names in places.values())
    print(f"{file.name}: {count} fields of {len(found)} engines")


if __name__ == "__main__":
    main()
