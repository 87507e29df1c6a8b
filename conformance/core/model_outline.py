"""The outline of a model: the kinds of its parts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Outline:
    """The kinds of a model's parts, at any size, without its weights.

    Attributes:
        module: the library's module that its class is from.
        kinds: by path (``model.layers``) the different kinds of modules in that list; under
            ``caches`` the classes of its caches.
        settings: the fields of every settings object in it, with the library's defaults.
        parameters: by path the number of elements of each.
    """

    module: str
    kinds: Mapping[str, frozenset[str]]
    settings: tuple[Mapping[str, Any], ...] = ()
    parameters: Mapping[str, int] = field(default_factory=dict)
