"""What of a family decides which defects can show in it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from conformance.scenarios.quantized import GROUPS

if TYPE_CHECKING:
    from conformance.reference.subject import Subject


def traits(subject: Subject) -> frozenset[str]:
    """``cache:KVCache``, ``state:recurrence``, ``rope:M-RoPE``, ``modality:image``, ``window``, ...

    Raises:
        Unsupported: the library's plugin can't tell what the model is made of.
    """
    return frozenset(_traits(subject))


def _traits(subject: Subject) -> Iterator[str]:
    found = subject.library.describe(subject.model)
    facts = subject.family.facts
    yield f"family:{subject.family.name}"
    yield f"rope:{found.positions}"
    yield from (f"cache:{kind}" for kind in found.caches)
    yield from (f"inner:{kind}" for kind in found.inner)
    if len(found.caches) == 1:
        yield f"only:{found.caches[0]}"
    yield from (f"state:{kind}" for kind in found.states)
    yield from (f"modality:{kind}" for kind in facts.modalities)
    yield from (f"drafter:{kind}" for kind in facts.drafters)
    if facts.window:
        yield "window"
    if facts.beside:
        yield "beside"
    if facts.required:
        yield f"required:{facts.required}"
    yield from _quantizable(subject)


def _quantizable(subject: Subject) -> Iterator[str]:
    """``quantizable`` at all, and by which groups uniformly.

    Nothing where the library's own single stream raises: there nothing can be told apart.
    """
    try:
        sizes = subject.library.head_sizes(subject.model)
    except Exception:  # noqa: BLE001 - whatever the library raises
        return
    if sizes:
        yield "quantizable"
        yield from (f"quantizable:{n}" for n in GROUPS if not any(size % n for size in sizes))
