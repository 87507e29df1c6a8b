"""The kinds of parts of a model, from its tree of modules alone: no weight is ever computed.

A model of any size can therefore be outlined in a second, and compared with a small copy.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import mlx.core as mx
from mlx.nn.layers.base import Module

from conformance.backend.checkpoint import parameters
from conformance.backend.description import cache_kinds
from conformance.core.library import Outline

_LONGEST_WORD = 40


def outline(model: Module, *, module: str, caches: Sequence[Any]) -> Outline:
    """The kinds of a model's layers and caches, and the settings that it was made from.

    Args:
        module: the library's module with the model's class.
        caches: the caches that the model makes, one for each layer.
    """
    kinds = {
        "caches": frozenset(cache_kinds(caches)),
        "caches before the last": frozenset(cache_kinds(caches[:-1])),
    }
    for path, signature in _listed(model, ""):
        kinds[path] = kinds.get(path, frozenset()) | {signature}
    sizes = {path: value.size for path, value in parameters(model).items()}
    return Outline(module, kinds, tuple(_settings(model)), sizes)


def _listed(module: Module, path: str) -> Iterator[tuple[str, str]]:
    """The signature of each module in a list, with the list's path."""
    for name, child in module.children().items():
        where = f"{path}.{name}".lstrip(".")
        if isinstance(child, list):
            for item in child:
                if isinstance(item, Module):
                    yield where, " ".join(_signature(item, ""))
                    yield from _listed(item, f"{where}.*")
        elif isinstance(child, Module):
            yield from _listed(child, where)


def _signature(module: Module, path: str) -> list[str]:
    """Classes, parameter names and non-numeric settings of a module and all its submodules."""
    own = [type(module).__name__]
    own += [name for name, value in module.items() if isinstance(value, mx.array)]
    settings = [(name, value) for name, value in vars(module).items() if _is_setting(name, value)]
    own += [f"{name}={_kind(value)}" for name, value in settings]
    signature = [f"{path}:{','.join(sorted(own))}"]
    for name, child in sorted(module.children().items()):
        inner = child if isinstance(child, list) else [child]
        for found in inner:
            if isinstance(found, Module):
                signature += _signature(found, f"{path}.{name}" if path else name)
    return list(dict.fromkeys(signature))


def _is_setting(name: str, value: Any) -> bool:
    """Whether an attribute defines the kind of a module; sizes and indices do not."""
    if name.startswith("_") or name in ("training", "bits", "group_size", "mode"):
        return False
    if isinstance(value, str):
        return len(value) <= _LONGEST_WORD
    return value is None or isinstance(value, bool | int | float)


def _kind(value: Any) -> str:
    if isinstance(value, bool | str):
        return str(value)
    return "none" if value is None else "number"


def _settings(model: Module) -> Iterator[Mapping[str, Any]]:
    """The fields of every settings object in the model, including the library's defaults."""
    seen = set()
    for _, module in model.named_modules():
        waiting = [vars(module).get("args"), vars(module).get("config")]
        while waiting:
            found = waiting.pop()
            if not dataclasses.is_dataclass(found) or id(found) in seen:
                continue
            seen.add(id(found))
            yield dict(vars(found))
            waiting += list(vars(found).values())
