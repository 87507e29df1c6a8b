"""Prints options that select the families that represent a kind: one for each kind of cache."""

import json
from pathlib import Path

PLUGINS = Path(__file__).parents[1] / "conformance/plugins"


def kinds() -> list[str]:
    """The names of these families, of both libraries."""
    files = PLUGINS.glob("*/families/[a-z]*.json")
    return sorted({f.stem for f in files if json.loads(f.read_text())["conformance"].get("quick")})


if __name__ == "__main__":
    print(" ".join(f"--conformance-family={name}" for name in kinds()))
