"""The published JSON Schema of one line of a result file."""

from __future__ import annotations

import inspect
import json
from importlib import resources
from typing import Any

import msgspec

from conformance.core.run_header import RunHeader
from conformance.core.verdict import CaseResult

DIALECT = "https://json-schema.org/draft/2020-12/schema"


def published_schema() -> dict[str, Any]:
    """The schema in the installed package, ``schema/result.schema.json``."""
    file = resources.files("conformance.core") / "schema" / "result.schema.json"
    schema: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return schema


def derived_schema() -> dict[str, Any]:
    """The schema derived from ``CaseResult`` and ``RunHeader``; the published one is the same."""
    template = "#/$defs/{name}"
    either, parts = msgspec.json.schema_components((CaseResult, RunHeader), ref_template=template)
    return {
        "$schema": DIALECT,
        "title": "mlx-conformance result",
        "description": "One line of a result file of `conformance run --json`: one case, or the "
        "header, which comes first.",
        "anyOf": list(either),
        "$defs": cleaned(parts),
    }


def cleaned(node: Any) -> Any:
    """Descriptions without indentation; before Python 3.13 docstrings keep it."""
    if isinstance(node, dict):
        return {
            key: inspect.cleandoc(value) if key == "description" else cleaned(value)
            for key, value in node.items()
        }
    return [cleaned(item) for item in node] if isinstance(node, list | tuple) else node


def schema_text() -> str:
    """``derived_schema`` as the text of the published file."""
    return json.dumps(derived_schema(), indent=2) + "\n"
