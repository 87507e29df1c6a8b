"""What of a family decides which defects can show in it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from conformance.subject import Subject


def traits(subject: Subject) -> frozenset[str]:
    """``cache:KVCache``, ``rope:M-RoPE``, ``modality:image``, ``window``, ``drafter:mtp``, ...

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
    yield from (f"modality:{kind}" for kind in facts.modalities)
    yield from (f"drafter:{kind}" for kind in facts.drafters)
    if facts.window:
        yield "window"
    if facts.required:
        yield f"required:{facts.required}"
    if subject.library.head_sizes(subject.model):
        yield "quantizable"
