"""Finds the batch caches of the installed libraries by their verbs, and the kind of each."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from conformance.power.caches.kinds.attention import (
    Attention,
    BufferedStream,
    Quantized,
    Rotating,
    RotatingStream,
    Stream,
    Turbo,
)
from conformance.power.caches.kinds.composite import Composite
from conformance.power.caches.kinds.kind import Kind
from conformance.power.caches.kinds.pooling import Pooling, PoolingStream
from conformance.power.caches.kinds.recurrent import Recurrent
from conformance.power.caches.stores import STORES

MODULES = ("mlx_lm.models.cache", "mlx_vlm.models.cache", "mlx_vlm.turboquant")

Maker = Callable[[ModuleType, type[Any]], Sequence[Kind]]


def _list(module: ModuleType, cls: type[Any]) -> Sequence[Kind]:
    plain = Attention(module, module.BatchKVCache)
    rotating = Rotating(module, module.BatchRotatingKVCache)
    arrays = Recurrent(module, module.ArraysCache)
    return (
        Composite(module, cls, [plain, rotating]),
        Composite(module, cls, [arrays, Attention(module, module.BatchKVCache)]),
    )


def _arrays(module: ModuleType, cls: type[Any]) -> Sequence[Kind]:
    # Some layers use only one of the slots.
    return Recurrent(module, cls), Recurrent(module, cls, used=[0])


MAKERS: dict[str, Maker] = {
    "ArraysCache": _arrays,
    "BatchKVCache": lambda module, cls: [Attention(module, cls)],
    "BatchPoolingCache": lambda module, cls: [Pooling(module, cls)],
    "BatchQuantizedKVCache": lambda module, cls: [Quantized(module, cls)],
    "BatchRotatingKVCache": lambda module, cls: [Rotating(module, cls)],
    # Keys of 3 bits with values of 4; sizes are rotated alike, whether powers of two or not.
    "BatchTurboQuantKVCache": lambda module, cls: [
        Turbo(module, cls),
        Turbo(module, cls, 3.5, (48, 32)),
    ],
    "BufferedRotatingKVCache": lambda module, cls: [BufferedStream(module, cls)],
    "CacheList": _list,
    "KVCache": lambda module, cls: [Stream(module, cls)],
    "PoolingCache": lambda module, cls: [PoolingStream(module, cls)],
    "RotatingKVCache": lambda module, cls: [RotatingStream(module, cls)],
}


@dataclass(frozen=True)
class Found:
    """A cache class of a library, and the kinds to test it as; none if it has no kind yet.

    A store of tokens has no kind: it is compared with plain data.
    """

    name: str
    cls: type[Any]
    kinds: tuple[Kind, ...]

    @property
    def is_store(self) -> bool:
        """Whether the class is a store, which has no rows and has its own programs."""
        return self.cls.__name__ in STORES

    @property
    def covered(self) -> bool:
        """Whether any test covers the class."""
        return bool(self.kinds) or self.is_store


def discover(modules: Sequence[str] = MODULES) -> list[Found]:
    """The batch caches and stores of those modules that are installed, sorted by name."""
    found = []
    for name in modules:
        if importlib.util.find_spec(name.partition(".")[0]) is None:
            continue
        module = importlib.import_module(name)
        found += [_with_kinds(module, cls) for cls in _batch_classes(module)]
    return sorted(found, key=lambda one: one.name)


def _with_kinds(module: ModuleType, cls: type[Any]) -> Found:
    maker = MAKERS.get(cls.__name__)
    try:
        kinds = tuple(maker(module, cls)) if maker else ()
    except AttributeError:  # old releases lack a class that its kind needs
        kinds = ()
    return Found(f"{module.__name__.partition('.')[0]}.{cls.__name__}", cls, kinds)


def _batch_classes(module: ModuleType) -> Iterator[type[Any]]:
    for cls in vars(module).values():
        if not isinstance(cls, type) or cls.__module__ != module.__name__:
            continue
        if is_batch_cache(cls) or cls.__name__ in STORES:
            yield cls


_METHODS = (
    *("update_and_fetch", "make_mask", "prepare", "advance", "finalize", "filter", "extend"),
    *("extract", "merge", "trim", "is_trimmable", "size", "empty", "nbytes", "from_state"),
)


def methods(cls: type[Any]) -> tuple[str, ...]:
    """The methods of batch caches that the class has."""
    return tuple(name for name in _METHODS if hasattr(cls, name))


def is_batch_cache(cls: type[Any]) -> bool:
    """Whether it has verbs that add, remove or merge rows."""

    def has(verb: str) -> bool:
        return callable(getattr(cls, verb, None))

    of_batch = has("filter") and has("extend")
    of_stream = has("update_and_fetch") and (has("merge") or has("extract"))
    return of_batch or of_stream
