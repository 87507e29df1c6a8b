"""The code of its library that a model runs: files and caches; the modules that have models."""

from __future__ import annotations

import pkgutil
import sys
from collections.abc import Iterator, Sequence
from inspect import isfunction
from pathlib import Path
from types import ModuleType
from typing import Any

import mlx.core as mx
from mlx.nn.layers.base import Module

from conformance.backend.cache_entries import leaves
from conformance.core.errors import FamilyError
from conformance.core.user_files import read_toml


def parts(model: Module, library: str) -> frozenset[str]:
    """``part:llama.Attention``, ``part:ssm.ssm_update``: each by its file below ``models``.

    The model's classes with their base classes, and the functions that the files of all these
    import from other files.

    Args:
        model: the model with all its modules.
        library: the package, ``mlx_lm``.
    """
    classes = {base for _, module in model.named_modules() for base in type(module).__mro__}
    own = {base.__module__ for base in classes}
    files = {_file(name, library) for name in own} - {""}
    modules = [
        module
        for name, module in list(sys.modules.items())
        if name in own or _file(name, library) in files
    ]
    functions = {
        value
        for module in modules
        for value in vars(module).values()
        if isfunction(value) and _file(value.__module__, library) != _file(module.__name__, library)
    }
    return frozenset(
        f"part:{_file(found.__module__, library)}.{found.__name__}"
        for found in classes | functions
        if _file(found.__module__, library)
    )


def _file(module: str, library: str) -> str:
    """The module or package below the library's ``models``; empty for any other module."""
    beginning = f"{library}.models."
    return module.removeprefix(beginning).split(".")[0] if module.startswith(beginning) else ""


def filled(entries: Sequence[Any]) -> Iterator[str]:
    """Traits of the caches after a pass.

    ``last:CacheList`` is the class of the last layer's cache, ``unfilled:KVCache`` of a cache that
    the pass has left empty. ``keys:uneven``: there are only plain keys and values, with several
    shapes.
    """
    if not entries:
        return
    yield f"last:{type(entries[-1]).__name__}"
    every = list(leaves(entries))
    yield from {f"unfilled:{type(entry).__name__}" for entry in every if _is_empty(entry)}
    if {type(entry).__name__ for entry in entries} == {"KVCache"}:
        arrays = [a for entry in every for a in (entry.keys, entry.values) if a is not None]
        if len({array.shape for array in arrays}) > 1:
            yield "keys:uneven"


def _is_empty(entry: Any) -> bool:
    states = getattr(entry, "cache", None)
    if isinstance(states, list):
        return any(state is None for state in states)
    keys = getattr(entry, "keys", mx.zeros(0))
    return keys is None


def modules_of(package: ModuleType) -> tuple[str, ...]:
    """Its modules and packages by name, including names with dashes; none is imported."""
    return tuple(sorted(found.name for found in pkgutil.iter_modules(package.__path__)))


def load_exclusions(path: Path) -> dict[str, str]:
    """The reason for each excluded module.

    Raises:
        FamilyError: the file is missing or malformed, or an entry gives no reason.
    """
    reasons = read_toml(path, FamilyError)
    for module, reason in reasons.items():
        if not isinstance(reason, str) or not reason.strip():
            raise FamilyError(f"{path}: {module!r} is excluded without a reason")
    return reasons
