"""The published JSON Schemas: for the lines of a trace, and for the files of exported vectors."""

from __future__ import annotations

import json
from importlib import resources
from typing import Any

import msgspec

from conformance.report.jsonl import DIALECT, cleaned
from conformance.tools.golden.format import Golden
from conformance.tools.vectors.contents import Manifest, ScenarioFile
from conformance.tools.vectors.records import Record

TRACE, VECTORS = "trace.schema.json", "vectors.schema.json"


def published_schema(name: str) -> dict[str, Any]:
    """The schema of that name as the installed package ships it, ``schema/NAME``."""
    file = resources.files("conformance.core") / "schema" / name
    schema: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return schema


def derived_schema(name: str) -> dict[str, Any]:
    """The schema derived from the records; a test compares the published one with it."""
    made = {TRACE: _of_trace, VECTORS: _of_vectors}[name]
    return {"$schema": DIALECT, **cleaned(made())}


def schema_text(name: str) -> str:
    """``derived_schema`` as the text of the published file."""
    return json.dumps(derived_schema(name), indent=2) + "\n"


def _of_trace() -> dict[str, Any]:
    return {
        "title": "mlx-conformance trace",
        "description": "One line of a trace that `conformance golden judge` judges.",
        **msgspec.json.schema(Record),
    }


def _of_vectors() -> dict[str, Any]:
    found, definitions = msgspec.json.schema_components(
        (Manifest, ScenarioFile, Golden), ref_template="#/$defs/{name}"
    )
    return {
        "title": "mlx-conformance vectors",
        "description": "manifest.json, FAMILY/SCENARIO.json or FAMILY/golden.json, as "
        "`conformance golden export` writes it.",
        "anyOf": list(found),
        "$defs": definitions,
    }
