"""Turns a source into a family that the library loads: outlines, shrinks, compares, writes it."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from conformance.core.errors import AdoptionError, FamilyError, ModelError, Unsupported
from conformance.core.family import SECTION, Facts, Family
from conformance.core.library import Description, Library, Outline
from conformance.core.user_files import read_object
from conformance.run.registry import Registry
from conformance.tools.new_family.config_checks import examine
from conformance.tools.new_family.depths import MOST_LAYERS
from conformance.tools.new_family.draft import Decision, Unshrunk
from conformance.tools.new_family.positions import WINDOW
from conformance.tools.new_family.processing import first_loadable, offered, refusal_text
from conformance.tools.new_family.shrink import Shrunk, shrink
from conformance.tools.new_family.source import WHAT_TO_GIVE, Source

_MEDIA_CONFIGS = ("vision_config", "audio_config", "vision_tower")
_WINDOWED = ("Rotating", "Chunked")
_LEARNED = "n_positions"
"""The size of a table of learned positions, which matter even without rotary embeddings."""
MOST_PARAMETERS = 20_000_000
_MOST_LAYERS = MOST_LAYERS + 8


@dataclass(frozen=True)
class Made:
    """A family that the library can build, and how it was made.

    Attributes:
        lost: kinds of layers, by place, that the full-size model has and the tiny one lacks.
        notes: assumptions in addition to the config's fields.
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
    """Make a tiny family of the source, written to ``folder`` as ``<name>.json``.

    Args:
        library: the name of the library to build it with; by default the first that can.

    Raises:
        AdoptionError: no library has the model, or it can't be built small; one sentence.
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
    family, model, origin = first_loadable(source, offers, chosen)
    description = _description(source, chosen, model)
    family = _described(family, description)
    family, recipe = _with_recipe(family, known, chosen)
    write_family(family, folder)
    notes = [f"{name}: {value!r} was assumed" for name, value in source.assumed.items()]
    notes += [note for note in (origin, recipe) if note]
    if source.model_file not in (None, source.path):
        notes.append(f"model: from {source.model_file}")
    if source.config.get("vision_config") and chosen.name != "mlx_vlm":
        notes.append("images: left out, this library reads only the language model")
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
    """Check that the model is tiny: a field that no rule knows may still have its full size."""
    total = sum(tiny.parameters.values())
    if total > MOST_PARAMETERS:
        path = max(tiny.parameters, key=tiny.parameters.__getitem__)
        raise AdoptionError(
            f"{source.path}: made small, the model still has {total:,} parameters "
            f"({MOST_PARAMETERS:,} at most); the largest is {path} with {tiny.parameters[path]:,}, "
            "whose size no rule found in the config"
        )


def lost_kinds(full: Outline, tiny: Outline) -> dict[str, frozenset[str]]:
    """Kinds of modules that the full model has and the tiny one lacks, by place."""
    found = {
        place: kinds - tiny.kinds.get(place, frozenset()) for place, kinds in full.kinds.items()
    }
    return {place: kinds for place, kinds in found.items() if kinds}


def _outlined(
    source: Source, registry: Registry, folder: Path, wanted: str | None
) -> tuple[Library, Outline]:
    """The library that has the model, and the outline of the full-size model."""
    if wanted is not None and wanted not in registry.libraries:
        raise AdoptionError(f"--library: there is no library {wanted!r}")
    has_media = any(source.config.get(key) for key in _MEDIA_CONFIGS)
    order = [wanted] if wanted else ["mlx_vlm", "mlx_lm"] if has_media else ["mlx_lm", "mlx_vlm"]
    reasons = []
    for name in order:
        if name not in registry.libraries:
            continue
        library = registry.libraries[name]
        try:
            with _without_logging():
                return library, library.outline(_family(source, source.config, library, folder))
        except Unsupported as error:
            reasons.append(refusal_text(error).replace(f"{source.name}: ", f"{name}: ", 1))
        except ModelError as error:
            raise AdoptionError(f"{source.path}: {name}: {refusal_text(error)}") from error
    reason = "; ".join(reasons) or "no library is installed"
    raise AdoptionError(f"{source.path}: no library can build it: {reason}; {_advice(source)}")


def _advice(source: Source) -> str:
    """Advice for the user if no library has the model."""
    if source.beside is None:
        return WHAT_TO_GIVE
    return f"--trust-remote-code lets {source.beside.name}, which is beside it, be run"


@contextlib.contextmanager
def _without_logging() -> Iterator[None]:
    """Silence the library's log: its errors are reported here, in one sentence."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(before)


def _shrunk(
    source: Source, library: Library, full: Outline, folder: Path
) -> tuple[Shrunk, Outline, dict[str, frozenset[str]]]:
    """The smallest config that keeps every kind of layer; layers are added while a kind is lost."""
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
            raise AdoptionError(f"{source.path}: made small: {refusal_text(error)}") from error
        _small(source, tiny)
        lost = lost_kinds(full, tiny)
        if best is None or len(lost) < len(best[2]):
            best = shrunk, tiny, lost
        layers = max(layers, shrunk.layers) + 1
        if not lost or layers > min(_MOST_LAYERS, shrunk.original_layers):
            return best


def _description(source: Source, library: Library, model: Any) -> Description:
    """A description of the tiny model, found by decoding its first tokens."""
    try:
        return library.describe(model)
    except Exception as error:
        reason = f"{type(error).__name__}: {error}"
        raise AdoptionError(
            f"{source.path}: the tiny model fails at its first tokens: {reason}"
        ) from error


def _described(family: Family, description: Description) -> Family:
    """The family with facts that need a built model: whether it has windows and uses positions."""
    windowed = any(kind.startswith(_WINDOWED) for kind in description.caches)
    facts = msgspec.structs.replace(
        family.facts,
        window=WINDOW if windowed else None,
        positions=description.positions != "none" or _LEARNED in family.config,
        notes=f"Made small from a config of full size; {family.name}.report.md says how.",
    )
    return msgspec.structs.replace(family, facts=facts)


def _with_recipe(family: Family, known: Family | None, library: Library) -> tuple[Family, str]:
    """The family with the weights recipe of an installed family of its module, if it fits."""
    if known is None or known.facts.weights == family.facts.weights:
        return family, ""
    facts = msgspec.structs.replace(family.facts, weights=known.facts.weights)
    lent = msgspec.structs.replace(family, facts=facts)
    try:
        library.load(lent, dtype="float32", seed=0)
    except FamilyError:  # a rule for parameters that this model lacks
        return family, ""
    return lent, f"weights: from the recipe of the installed family {known.name}"


def _family(
    source: Source, config: dict[str, Any], library: Library, folder: Path, *, module: str = ""
) -> Family:
    """A family of this config; its own Python file, if any, names the module."""
    name = None
    if source.model_file is not None:
        name, module = source.model_file.name, source.model_file.stem
    facts = Facts(library=library.name, module=module, model_file=name)
    return Family(source.name, facts, config, str(folder / f"{source.name}.json"))


def family_text(family: Family) -> str:
    """The text of a family's file: its config, then the family's facts."""
    section = msgspec.to_builtins(family.facts)
    section = {"library": family.facts.library, "module": family.facts.module, **section}
    return json.dumps({**family.config, SECTION: section}, indent=2, ensure_ascii=False) + "\n"


def write_family(family: Family, folder: Path) -> Path:
    """Write ``<name>.json`` to a folder; return its path."""
    path = folder / f"{family.name}.json"
    path.write_text(family_text(family), encoding="utf-8")
    return path


def workplace(target: Path, *, force: bool = False) -> Path:
    """A temporary folder next to ``target``, so that files can be renamed into place.

    Args:
        force: an existing family file may be replaced.

    Raises:
        AdoptionError: nothing can be written there, or ``target`` exists already.
    """
    if target.exists() and not force:
        raise AdoptionError(
            f"{target}: exists already; name another file with --out, or replace it with --force"
        )
    if target.exists() and SECTION not in read_object(target, AdoptionError):
        raise AdoptionError(f"{target}: is no family file, so --force does not replace it")
    try:
        return Path(tempfile.mkdtemp(prefix=".new-family-", dir=target.parent))
    except OSError as error:
        raise AdoptionError(f"{target}: cannot write there: {error.strerror}") from error


def publish(folder: Path, target: Path, others: dict[Path, Path]) -> None:
    """Move the files in ``folder`` to their places, the family's file last.

    Args:
        others: further files of the family, and the destination of each.

    Raises:
        AdoptionError: a file can't be written; all changes are then undone.
    """
    before = {place: place.read_bytes() for place in others.values() if place.is_file()}
    placed: list[Path] = []
    try:
        for made, place in others.items():
            os.replace(made, place)  # noqa: PTH105 - the one call whose atomicity is documented
            placed.append(place)
        os.replace(folder / target.name, target)  # noqa: PTH105
    except OSError as error:
        for place in placed:
            if place in before:
                place.write_bytes(before[place])
            else:
                place.unlink(missing_ok=True)
        raise AdoptionError(f"{target}: cannot write there: {error.strerror}") from error


def remove(folder: Path) -> None:
    """Remove the temporary folder."""
    shutil.rmtree(folder, ignore_errors=True)
