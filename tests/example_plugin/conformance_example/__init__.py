"""A worked example of a plugin: one family that mlx-lm does not ship, one engine.

The entry point in ``pyproject.toml`` names this module; its marked functions are the hooks.
"""

from pathlib import Path

from conformance import hookimpl, load_family
from conformance_example.one_by_one import OneByOne


@hookimpl
def conformance_families():
    """A llama whose logits are capped; the library's loader finds the model in ``model_file``."""
    return [load_family(Path(__file__).parent / "capped_llama.json")]


@hookimpl
def conformance_engines():
    """One engine."""
    return [OneByOne]
