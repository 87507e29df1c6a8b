"""The JSON Schemas that the package publishes."""

import json
from importlib import resources


def published_schema(name="result.schema.json"):
    """The schema in the installed package."""
    file = resources.files("conformance.core") / "schema" / name
    return json.loads(file.read_text(encoding="utf-8"))
