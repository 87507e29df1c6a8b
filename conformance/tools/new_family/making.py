"""From a source to a family that the library loads: outlined at full size, shrunk, compared."""

from __future__ import annotations

import contextlib
import logging
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from conformance.core.errors import AdoptionError, FamilyError, ModelError, Unsupported
from conformance.core.family import Facts, Family
from conformance.core.library import Description, Library, Outline
from conformance.run.registry import Registry
from conformance.tools.new_family.checking import examine
from conformance.tools.new_family.depths import MOST_LAYERS
from conformance.tools.new_family.draft import Decision, Unshrunk
from conformance.tools.new_family.positions import WINDOW
from conformance.tools.new_family.shrink import Shrunk, shrink
from conformance.tools.new_family.source import Source
from conformance.tools.new_family.trying import first_that_works, offered, words
from conformance.tools.new_family.writing import write_family

_SEES = ("vision_config", "audio_config", "vision_tower")
_WINDOWED = ("Rotating", "Chunked")
_LEARNED = "n_positions"
"""The rows of a table of learned positions; nothing rotates, but positions are known."""
MOST_PARAMETERS = 20_000_000
_MOST_LAYERS = MOST_LAYERS + 8


@dataclass(frozen=True)
class Made:
    """A family that builds, and how it came about.

    Attributes:
        lost: kinds of layers, by place, that the full-size model has and the tiny one lacks.
        notes: what was assumed beside the config's fields.
    """

    family: Family
    library: Library
    full: Outline
    tiny: Outline
    description: Description
    decisions: tuple[Decision, ...]
    unshrunk: tuple[Unshrunk, ...]
    lost: Mapping[str, frozenset[str]]
    notes: tuple[str, ...]


def make(source: Source, registry: Registry, folder: Path, *, library: str | None) -> Made:
    """A tiny family of the source, written to ``folder`` as ``<name>.json``.

    Args:
        library: the name of the one to build it with; by default the first that knows it.

    Raises:
        AdoptionError: no library knows the model, or it can't be built small; one sentence.
    """
    try:
        examine(source.config)
    except AdoptionError as error:
        raise AdoptionError(f"{source.path}: {error}") from error
    if source.model_file is not None:
        shutil.copyfile(source.model_file, folder / source.model_file.name)
    chosen, full = _outlined(source, registry, folder, library)
    shrunk, tiny, lost = _shrunk(source, chosen, full, folder)
    bare = _family(source, shrunk.config, chosen, folder, module=full.module)
    known = registry.families.get((chosen.name, full.module))
    offers = offered(source, shrunk, bare, known)
    family, model, origin = first_that_works(source, offers, chosen)
    description = _description(source, chosen, model)
    family = _described(family, description)
    family, recipe = _with_recipe(family, known, chosen)
    write_family(family, folder)
    notes = [f"{name}: {value!r} was assumed" for name, value in source.assumed.items()]
    notes += [note for note in (origin, recipe) if note]
    if source.config.get("vision_config") and chosen.name != "mlx_vlm":
        notes.append("images: left out, this library reads the language model alone")
    return Made(
        family,
        chosen,
        full,
        tiny,
        description,
        shrunk.decisions,
        shrunk.unshrunk,
        lost,
        tuple(notes),
    )


def _small(source: Source, tiny: Outline) -> None:
    """That the model is tiny: what no rule reaches may be of full size still.

    Raises:
        AdoptionError: it is not; names the largest parameter.
    """
    total = sum(tiny.parameters.values())
    if total > MOST_PARAMETERS:
        path = max(tiny.parameters, key=tiny.parameters.__getitem__)
        raise AdoptionError(
            f"{source.path}: made small, the model still has {total:,} parameters "
            f"({MOST_PARAMETERS:,} at most); the largest is {path} with {tiny.parameters[path]:,}, "
            "whose size no rule found in the config"
        )


def lost_kinds(full: Outline, tiny: Outline) -> dict[str, frozenset[str]]:
    """Kinds of what is listed in the full model that the tiny one has not, by place."""
    found = {
        place: kinds - tiny.kinds.get(place, frozenset()) for place, kinds in full.kinds.items()
    }
    return {place: kinds for place, kinds in found.items() if kinds}


def _outlined(
    source: Source, registry: Registry, folder: Path, wanted: str | None
) -> tuple[Library, Outline]:
    """The library that knows the model, and what it would build at full size."""
    if wanted is not None and wanted not in registry.libraries:
        raise AdoptionError(f"--library: there is no library {wanted!r}")
    sees = any(source.config.get(key) for key in _SEES)
    order = [wanted] if wanted else ["mlx_vlm", "mlx_lm"] if sees else ["mlx_lm", "mlx_vlm"]
    said = []
    for name in order:
        if name not in registry.libraries:
            continue
        library = registry.libraries[name]
        try:
            with _quietly():
                return library, library.outline(_family(source, source.config, library, folder))
        except Unsupported as error:
            said.append(words(error).replace(f"{source.name}: ", f"{name}: ", 1))
        except ModelError as error:
            raise AdoptionError(f"{source.path}: {name}: {words(error)}") from error
    reasons = "; ".join(said) or "there is none here"
    raise AdoptionError(f"{source.path}: no library can build it: {reasons}")


@contextlib.contextmanager
def _quietly() -> Iterator[None]:
    """Without the log of a library, which tells errors that are told here in a sentence."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(before)


def _shrunk(
    source: Source, library: Library, full: Outline, folder: Path
) -> tuple[Shrunk, Outline, dict[str, frozenset[str]]]:
    """The least config that keeps every kind of layer; layers are added while one is lost."""
    best: tuple[Shrunk, Outline, dict[str, frozenset[str]]] | None = None
    layers = 0
    while True:
        try:
            shrunk = shrink(
                source.config,
                settings=full.settings,
                files=source.files,
                special=source.texts,
                layers_least=layers,
            )
            tiny = library.outline(_family(source, shrunk.config, library, folder))
        except AdoptionError as error:
            raise AdoptionError(f"{source.path}: {error}") from error
        except ModelError as error:
            raise AdoptionError(f"{source.path}: made small: {words(error)}") from error
        _small(source, tiny)
        lost = lost_kinds(full, tiny)
        if best is None or len(lost) < len(best[2]):
            best = shrunk, tiny, lost
        layers = max(layers, shrunk.layers) + 1
        if not lost or layers > min(_MOST_LAYERS, shrunk.layers_said):
            return best


def _description(source: Source, library: Library, model: Any) -> Description:
    """What the tiny model is made of, told from its first tokens.

    Raises:
        AdoptionError: it fails at them.
    """
    try:
        return library.describe(model)
    except Exception as error:
        told = f"{type(error).__name__}: {error}"
        raise AdoptionError(
            f"{source.path}: the tiny model fails at its first tokens: {told}"
        ) from error


def _described(family: Family, description: Description) -> Family:
    """The family with what only a built model tells: whether it slides, and knows positions."""
    windowed = any(kind.startswith(_WINDOWED) for kind in description.caches)
    facts = msgspec.structs.replace(
        family.facts,
        window=WINDOW if windowed else None,
        positions=description.positions != "none" or _LEARNED in family.config,
        notes=f"Made small from a config of full size; {family.name}.report.md says how.",
    )
    return msgspec.structs.replace(family, facts=facts)


def _with_recipe(family: Family, known: Family | None, library: Library) -> tuple[Family, str]:
    """The family with the weights recipe of an installed one of its module, if that fits."""
    if known is None or known.facts.weights == family.facts.weights:
        return family, ""
    facts = msgspec.structs.replace(family.facts, weights=known.facts.weights)
    lent = msgspec.structs.replace(family, facts=facts)
    try:
        library.load(lent, dtype="float32", seed=0)
    except FamilyError:  # a rule for parameters that this model has not
        return family, ""
    return lent, f"weights: begun with the recipe of the installed family {known.name}"


def _family(
    source: Source, config: dict[str, Any], library: Library, folder: Path, *, module: str = ""
) -> Family:
    """A family of this config; a Python file of its own names the module."""
    name = None
    if source.model_file is not None:
        name, module = source.model_file.name, source.model_file.stem
    facts = Facts(library=library.name, module=module, model_file=name)
    return Family(source.name, facts, config, str(folder / f"{source.name}.json"))
