"""The file formats, from the JSON Schemas that the package ships."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

SCHEMAS = Path(__file__).parents[2] / "conformance" / "core" / "schema"


def published() -> list[dict[str, Any]]:
    """Each schema: its title, file, text, and records."""
    found = [(path, json.loads(path.read_text(encoding="utf-8"))) for path in _files()]
    return [
        {
            "title": schema["title"],
            "file": f"conformance/core/schema/{path.name}",
            "text": schema.get("description", ""),
            "records": [_record(name, record) for name, record in schema["$defs"].items()],
        }
        for path, schema in found
    ]


def _files() -> list[Path]:
    return sorted(SCHEMAS.glob("*.schema.json"))


def _record(name: str, record: dict[str, Any]) -> dict[str, Any]:
    needed = record.get("required", ())
    fields = [
        {"name": field, "type": kind(value), "needed": field in needed}
        for field, value in record.get("properties", {}).items()
    ]
    return {
        "name": name,
        "text": record.get("description", ""),
        "fields": fields,
        "values": record.get("enum", []),
    }


def kind(node: dict[str, Any]) -> str:
    """A field's type in words: ``list of Token``, ``number or null``."""
    if "anyOf" in node:
        return " or ".join(kind(each) for each in node["anyOf"])
    if "enum" in node:
        return " or ".join(f"`{value}`" for value in node["enum"])
    if "prefixItems" in node:
        return f"[{', '.join(kind(item) for item in node['prefixItems'])}]"
    of = node.get("items") or node.get("additionalProperties")
    plain = node.get("$ref", "").rpartition("/")[2] or node.get("type", "any")
    plain = {"array": "list"}.get(plain, plain)
    return f"{plain} of {kind(of)}" if isinstance(of, dict) else plain
