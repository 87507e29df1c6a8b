"""Removes the fields of a config whose values are the library's defaults."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import reduce
from typing import Any

import msgspec

from conformance.core.errors import ConformanceError
from conformance.core.family import Family
from conformance.core.library import Library, Outline
from conformance.scenarios.minimizing import fewest
from conformance.tools.repro.found import FieldPath

# These are always kept: they define the model.
_KEPT = frozenset({"model_type", "text_config", "vision_config", "audio_config"})


def defaults(library: Library, family: Family) -> tuple[FieldPath, ...]:
    """The fields of the family's config that do not change the model's outline.

    The outline has every setting, so a model without these fields computes the same.
    """
    paths = list(_paths(family.config))
    try:
        whole = library.outline(family)
    except ConformanceError:
        return ()

    def same(kept: Sequence[FieldPath]) -> bool:
        config = minimal_config(family.config, (path for path in paths if path not in kept))
        return _same(library, msgspec.structs.replace(family, config=config), whole)

    needed = fewest(paths, same, at_once=1)
    return tuple(path for path in paths if path not in needed)


def minimal_config(config: Mapping[str, Any], paths: Iterable[FieldPath]) -> dict[str, Any]:
    """The config without those fields."""
    return reduce(_without, paths, dict(config))


def _same(library: Library, family: Family, whole: Outline) -> bool:
    try:
        found = library.outline(family)
    except Exception:  # noqa: BLE001 - whatever it raises, the field is needed
        return False
    return found == whole and _texts(found) == _texts(whole)


def _texts(outline: Outline) -> list[str]:
    """The settings as text: 1, 1.0 and True differ for some libraries."""
    return [repr(sorted(settings.items(), key=str)) for settings in outline.settings]


def _paths(config: Mapping[str, Any], above: FieldPath = ()) -> Iterator[FieldPath]:
    for name, value in config.items():
        if isinstance(value, dict):
            yield from _paths(value, (*above, name))
        if name not in _KEPT:
            yield (*above, name)


def _without(config: dict[str, Any], path: FieldPath) -> dict[str, Any]:
    first, *rest = path
    if not rest:
        return {name: value for name, value in config.items() if name != first}
    if not isinstance(config.get(first), dict):
        return config
    return {**config, first: _without(config[first], tuple(rest))}
