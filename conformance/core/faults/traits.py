"""Traits of a family that decide which defects can show in it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Protocol

from conformance.core.engine_options import KV_GROUPS

if TYPE_CHECKING:
    from conformance.core.family import Family
    from conformance.core.library import Description, Library


class Described(Protocol):
    """A loaded model of a family; a ``Subject`` is one."""

    @property
    def family(self) -> Family:
        """The facts about the family."""

    @property
    def library(self) -> Library:
        """The library of the model."""

    @property
    def model(self) -> Any:
        """The library's own model object."""


def traits(subject: Described) -> frozenset[str]:
    """``cache:KVCache``, ``state:recurrence``, ``rope:M-RoPE``, ``modality:image``, ``window``, ...

    Raises:
        Unsupported: the library's plugin can't describe the model.
    """
    return frozenset(_traits(subject))


def code_traits(subject: Described) -> frozenset[str]:
    """Traits that decide which shared code runs, as entries of known defects name them.

    ``expectations/README.md`` lists the kinds.

    Raises:
        Unsupported: the library's plugin can't describe the model.
    """
    found = frozenset(_described(subject, subject.library.describe(subject.model)))
    return found | frozenset(_uncut(subject)) | subject.library.code_traits(subject.model)


def _uncut(subject: Described) -> Iterator[str]:
    """Parts of prompts that must not be cut into pieces."""
    if subject.family.facts.uncut_media:
        yield "uncut:media"
    if subject.family.facts.bidirectional_prompt:
        yield "uncut:prompt"


def _described(subject: Described, found: Description) -> Iterator[str]:
    facts = subject.family.facts
    yield f"rope:{found.positions}"
    yield from (f"cache:{kind}" for kind in found.caches)
    yield from (f"state:{kind}" for kind in found.states)
    yield from (f"modality:{kind}" for kind in facts.modalities)
    yield from (f"drafter:{kind}" for kind in facts.drafters)


def _traits(subject: Described) -> Iterator[str]:
    found = subject.library.describe(subject.model)
    facts = subject.family.facts
    yield from _described(subject, found)
    yield f"family:{subject.family.name}"
    yield from (f"inner:{kind}" for kind in found.inner)
    if len(found.caches) == 1:
        yield f"only:{found.caches[0]}"
    if facts.window:
        yield "window"
    if facts.beside:
        yield "beside"
    if facts.required:
        yield f"required:{facts.required}"
    yield from _quantizable(subject)


def _quantizable(subject: Described) -> Iterator[str]:
    """``quantizable``, and the group sizes of uniform quantization.

    Nothing if the library's own single stream raises: then no difference could be seen.
    """
    try:
        sizes = subject.library.head_sizes(subject.model)
    except Exception:  # noqa: BLE001 - whatever the library raises
        return
    if sizes:
        yield "quantizable"
        yield from (f"quantizable:{n}" for n in KV_GROUPS if not any(size % n for size in sizes))
