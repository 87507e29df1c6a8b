"""The key of a stored oracle: a hash of all that a tiny family's single streams depend on."""

from __future__ import annotations

import inspect
from pathlib import Path

import msgspec

import conformance
from conformance.core.content_keys import digest, file_digest
from conformance.core.family import Family
from conformance.core.library import Library
from conformance.reference.surroundings import LIBRARIES, Environment, family_digest

# Code of this project that makes a model or decodes one request; requests have their own keys.
_OWN = ("core", "backend", "reference")
# Parts of a plugin that no single stream runs.
_PROVE = ("mends",)


def oracle_key(library: Library, family: Family, dtype: str, seed: int) -> str | None:
    """The key; ``None`` for real checkpoints, or for a library that names no package.

    Also ``None`` if the machine's hardware is unknown, or if the library's modules have changed
    since this process began.
    """
    environment = Environment.first()
    if family.checkpoint is not None or not library.package or not environment.installed:
        return None
    known = library.package in LIBRARIES
    if known and not environment.unchanged_modules(library.package):
        return None
    parts = {
        "environment": environment.installed,
        "library": [library.name, type(library).__qualname__, _adapter(environment, library)],
        "sources": [environment.modules(library.package), environment.own(*_OWN)],
        "versions": dict(library.versions()),
        "device": library.device(),
        "family": family_digest(family),
        "load": [dtype, seed],
    }
    return digest([msgspec.json.encode(parts, order="sorted")])


def _adapter(environment: Environment, library: Library) -> str:
    """A hash of the code that calls the library."""
    file = Path(inspect.getfile(type(library)))
    own = Path(str(conformance.__file__)).parent
    if not file.is_relative_to(own):
        return file_digest(file)
    return environment.own(str(file.parent.relative_to(own)), but=_PROVE)
