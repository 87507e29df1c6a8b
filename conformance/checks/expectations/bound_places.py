"""Where an entry's places are in the installed library, for readers.

``functions.json`` in the entries' folder has, for each place that ``where`` names, the digest of
its function; ``ci/upstream_functions.py`` writes it. It also has the digest of the whole file, and
the line: an unchanged file need not be parsed.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping

import msgspec

from conformance.core.upstream_functions import (
    Place,
    digests,
    line_of,
    places,
    source_text,
    text_digest,
)


class Bound(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A place as it was diagnosed.

    Attributes:
        line: in its file.
        source: the digest of its function.
        file: the digest of its file.
    """

    line: int
    source: str
    file: str


def bound(where: str) -> dict[str, Bound]:
    """Each place that the text names, as it is in the installed library.

    Places that are not there are left out.
    """
    found = {}
    for place in places(where):
        line = _line(place)
        if line is not None:
            source = _digests_of(place.file)[place.function]
            found[str(place)] = Bound(line, source, _file_digest(place.file))
    return found


def unchanged(place: Place, diagnosed: Bound) -> bool:
    """Whether the installed library's function is the one that was diagnosed."""
    same_file = _file_digest(place.file) == diagnosed.file
    return same_file or _digests_of(place.file).get(place.function) == diagnosed.source


def shown(where: str, diagnosed: Mapping[str, Bound]) -> str:
    """The text with each place as file and line in the installed library."""
    for place in sorted(set(places(where)), key=lambda one: -len(str(one))):
        where = where.replace(str(place), at(place, diagnosed.get(str(place))))
    return where


def at(place: Place, diagnosed: Bound | None) -> str:
    """File and line in the installed library, and whether the function is another one there.

    Without the library, the line is that of the diagnosis.
    """
    here = source_text(f"{place.module.partition('.')[0]}/__init__.py") is not None
    if diagnosed is not None and (not here or _file_digest(place.file) == diagnosed.file):
        return f"{place.file}:{diagnosed.line}"
    line = _line(place)
    if line is None:
        return f"{place.file} ({place.function} is gone here)" if here else str(place)
    if diagnosed is not None and not unchanged(place, diagnosed):
        first = _line(Place(place.module, place.function))
        return f"{place.file}:{first} ({place.function}: its function changed here)"
    return f"{place.file}:{line}"


def _line(place: Place) -> int | None:
    return line_of(place, source_text(place.file) or "")


@functools.cache
def _file_digest(file: str) -> str:
    return text_digest(source_text(file) or "")


@functools.cache
def _digests_of(file: str) -> dict[str, str]:
    return digests(source_text(file) or "")
