"""The library's modules, found when a fault is put in, and small things that faults share.

Nothing of the library is imported before: a release that lacks a module still lists its faults.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any

from conformance.core.faults.base import Fault, replaced
from conformance.core.faults.patching import Injection

ENGINE = "mlx_vlm"
# With any cache but DeepSeek-V4.1's, whose attention is given each row alone, without its padding.
PADDED = ("cache:*KVCache|cache:ArraysCache|cache:PoolingCache|cache:Z1TCache",)


def part(name: str) -> Any:
    """The module ``mlx_vlm.<name>``."""
    return importlib.import_module(f"mlx_vlm.{name}")


def batch_class() -> Any:
    """The class of the batch that decodes."""
    return part("generate.ar").GenerationBatch


def prompt_class() -> Any:
    """The class of the batch in prefill."""
    return part("generate.ar").PromptProcessingBatch


def generator_class() -> Any:
    """The class that takes requests."""
    return part("generate.ar").BatchGenerator


def after(
    owner: Any, name: str, then: Callable[[Any, Any, tuple[Any, ...]], Any]
) -> AbstractContextManager[None]:
    """``owner.name`` runs, then ``then(self, result, args)`` gives what it returns."""
    real = getattr(owner, name)

    def changed(self: Any, *args: Any, **options: Any) -> Any:
        return then(self, real(self, *args, **options), args)

    return replaced(owner, name, changed)


def before(owner: Any, name: str, first: Callable[[Any], None]) -> AbstractContextManager[None]:
    """``first(self)`` runs, then ``owner.name``."""
    real = getattr(owner, name)

    def changed(self: Any, *args: Any, **options: Any) -> Any:
        first(self)
        return real(self, *args, **options)

    return replaced(owner, name, changed)


def fault(
    name: str,
    fault_class: str,
    source: str,
    summary: str,
    inject: Injection,
    *,
    kills: str,
    needs: Sequence[str] = (),
    crash: bool = False,
    where: str = "",
) -> Fault:
    """A fault of this engine; ``summary`` is made a sentence, ``kills`` has spaces between."""
    return Fault(
        name,
        fault_class,
        source,
        f"{summary[0].upper()}{summary[1:]}.",
        ENGINE,
        tuple(needs),
        tuple(kills.split()),
        inject,
        crash=crash,
        where=where,
    )


def padding(caches: Sequence[Any]) -> Any:
    """Each row's left padding by the first cache that counts it; None if none does."""
    for cache in caches:
        found = getattr(cache, "left_padding", None)
        if found is not None and hasattr(cache, "offset"):
            return found
    return None
