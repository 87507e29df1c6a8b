"""A config while it is shrunk: its original fields, its new ones, and the reasons.

Rules read the *original* fields, so that no rule depends on those that ran before it. Decisions of
one rule for others (the width, for instance) are in ``Tower.sizes``.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

Fields = dict[str, Any]


@dataclass(frozen=True)
class Decision:
    """The change of one field of the config.

    Attributes:
        field: its path, ``text_config.hidden_size``.
        rule: the rule that decided.
        before, after: its values; ``after`` is ``None`` for a dropped field.
    """

    field: str
    rule: str
    before: Any
    after: Any
    why: str


@dataclass(frozen=True)
class Unshrunk:
    """A field that keeps its large value, and the reason."""

    field: str
    value: Any
    why: str


@dataclass
class Place:
    """One object in the config: its path (empty for the config itself), and its fields.

    Attributes:
        original: the fields before any rule.
        filled: fields that the config left to the library's defaults.
    """

    path: str
    now: Fields
    original: Fields
    filled: set[str] = field(default_factory=set)

    @classmethod
    def of(cls, path: str, now: Fields) -> Place:
        """A place before any rule."""
        return cls(path, now, copy.deepcopy(now))

    def name(self, key: str) -> str:
        """The path of one of its fields."""
        return f"{self.path}.{key}" if self.path else key


@dataclass
class Draft:
    """A config and all decisions about it. ``looked`` are the fields that a rule has handled."""

    config: Fields
    decisions: list[Decision] = field(default_factory=list)
    looked: set[str] = field(default_factory=set)
    rule: str = ""

    def put(self, place: Place, key: str, value: Any, why: str) -> None:
        """Set a field; record a decision if its value changes."""
        path = place.name(key)
        self.looked.add(path)
        before = place.original.get(key)
        place.now[key] = value
        if before != value:
            why += "; the config left it to the library" if key in place.filled else ""
            self.decisions = [d for d in self.decisions if d.field != path]
            self.decisions.append(Decision(path, self.rule, before, value, why))

    def drop(self, place: Place, key: str, why: str) -> None:
        """Remove a field."""
        path = place.name(key)
        self.looked.add(path)
        before = place.now.pop(key)
        self.decisions.append(Decision(path, self.rule, before, None, why))


@dataclass
class Tower:
    """The objects of a config that describe one tower: its own first, then the enclosing ones.

    Attributes:
        kind: ``text``, ``vision`` or ``audio``.
        sizes: decisions of earlier rules that later ones use.
        layers_least: the fewest layers that the depth rule may leave.
    """

    kind: str
    places: list[Place]
    draft: Draft
    sizes: dict[str, int] = field(default_factory=dict)
    layers_least: int = 0

    def get(self, *keys: str) -> Any:
        """The original value of the first of these keys that the config has; else ``None``."""
        return next((value for _, _, value in self.each(*keys)), None)

    def number(self, *keys: str) -> int | None:
        """Like ``get``, but also ``None`` if the value is not an integer."""
        value = self.get(*keys)
        return value if isinstance(value, int) and not isinstance(value, bool) else None

    def each(self, *keys: str) -> Iterator[tuple[Place, str, Any]]:
        """Every occurrence of these keys with a value that is not null, in key order."""
        for key in keys:
            for place in self.places:
                if place.original.get(key) is not None:
                    yield place, key, place.original[key]

    def put(self, keys: tuple[str, ...], value: Any, why: str) -> None:
        """Set every occurrence of these keys."""
        for place, key, _ in self.each(*keys):
            self.draft.put(place, key, value, why)

    def cap(self, keys: tuple[str, ...], most: int, why: str) -> None:
        """Reduce every number above ``most`` to ``most``."""
        for place, key, value in self.each(*keys):
            if isinstance(value, int | float) and not isinstance(value, bool):
                # Keep the type of the number: some configs require it.
                self.draft.put(place, key, min(value, type(value)(most)), why)

    def keep(self, *keys: str) -> None:
        """Mark these keys as handled without changing them."""
        for place, key, _ in self.each(*keys):
            self.draft.looked.add(place.name(key))
