"""A checkpoint folder as a family: the same cases, on real weights and real text."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from conformance.core.errors import CheckpointError, FamilyError
from conformance.core.family import Checkpoint, Facts, Family
from conformance.core.library import Library
from conformance.core.remote_code import sealed
from conformance.reference.sealed import why_unwritable
from conformance.run.registry import Registry
from conformance.tools.checkpoints.finite import check_finite
from conformance.tools.checkpoints.folder import Folder, look, window_of
from conformance.tools.checkpoints.given import Given
from conformance.tools.checkpoints.preflight import fits, room
from conformance.tools.checkpoints.prompts import read_texts
from conformance.tools.checkpoints.tokenizing import check_tokenizer, encoded

# A config with one of these has a vision or audio tower.
_TOWERS = ("vision_config", "audio_config", "vision_tower", "mm_vision_tower")


@dataclass(frozen=True)
class Opened:
    """A checkpoint, ready to be run.

    Attributes:
        registry: includes the checkpoint as one more family.
        name: of that family.
        dtype: of most of its weights.
        engines: the engines that the user chose; by default the likely one.
        notes: what a user should know before the run.
    """

    registry: Registry
    name: str
    dtype: str
    engines: tuple[str, ...]
    notes: tuple[str, ...]


def open_checkpoint(
    registry: Registry, given: Given, engines: Sequence[str] = (), dtypes: Sequence[str] = ()
) -> Opened:
    """Make the checkpoint a family of each library whose engines were chosen.

    Nothing is loaded yet. Only the digest is written, and the fact that the weights are finite, at
    the end.

    Raises:
        CheckpointError: the folder or the prompts are damaged or incomplete, the folder asks for
            code to be run, or memory does not suffice.
        Unsupported: a library has no such model.
        ConformanceError: a glob of ``engines`` matches nothing.
    """
    folder = look(given.folder)
    name = re.sub(r"[^\w.+-]+", "_", folder.path.resolve().name) or "checkpoint"
    has_media = any(folder.config.get(tower) for tower in _TOWERS)
    wanted = tuple(engines) or ("mlx_vlm" if has_media else "mlx_lm",)
    chosen = registry.select_engines(wanted)
    needed = {d: room(folder, d, force=given.force) for d in dtypes or (folder.dtype,)}
    notes = tuple(f"{name}: {dtype}, {memory}" for dtype, memory in needed.items())
    # Reference engines, for a second opinion, belong to the same libraries.
    libraries = sorted({registry.engines[engine].library for engine in chosen})
    made = {
        (library, name): open_family(registry, registry.libraries[library], folder, given, name)
        for library in libraries
    }
    families = dict(sorted({**registry.families, **made}.items()))
    notes += tuple(filter(None, (why_unwritable(given.cache_folder),)))
    return Opened(
        dataclasses.replace(registry, families=families), name, folder.dtype, wanted, notes
    )


def open_family(
    registry: Registry, library: Library, folder: Folder, given: Given, name: str
) -> Family:
    """The checkpoint as a family of one library.

    Raises:
        CheckpointError: see ``open_checkpoint``.
    """
    if "model_file" in folder.config and not given.trusted:
        raise CheckpointError(
            f"{folder.path / 'config.json'}: the field 'model_file' asks for Python code of the "
            "folder to be run; --trust-remote-code allows it"
        )
    facts = _facts(registry, library, folder)
    config = folder.path / "config.json"
    family = Family(name, facts, dict(folder.config), str(config))
    try:
        size = family.vocab_size
    except (FamilyError, TypeError, ValueError) as error:
        raise CheckpointError(
            f"{folder.path / 'config.json'}: the field 'vocab_size' is missing or is not a number"
        ) from error
    with sealed(folder.path, trusted=given.trusted):
        fits(library, folder, trusted=given.trusted)
    texts = _encoded(library, folder, given, size)
    memory = given.cache_folder / "digests"
    check_finite(library, folder, memory, trusted=given.trusted)
    checkpoint = Checkpoint(
        str(folder.path.absolute()),
        digest=folder.digest(memory),
        texts=texts,
        trusted=given.trusted,
        cache=str(given.cache_folder.absolute()),
    )
    return msgspec.structs.replace(family, checkpoint=checkpoint)


def like_family(registry: Registry, library: str, module: str) -> Facts:
    """The facts of the tiny family of a module; the defaults if there is no such family."""
    families = [f for (own, _), f in registry.families.items() if own == library]
    like = [family.facts for family in families if family.module == module]
    return like[0] if like else Facts()


def _facts(registry: Registry, library: Library, folder: Folder) -> Facts:
    module = str(folder.config["model_type"])
    known = like_family(registry, library.name, module)
    if known.required:
        raise CheckpointError(
            f"{folder.path}: each request of a {module} must hold one {known.required}, and "
            "checkpoints are run on text alone"
        )
    return Facts(
        library=library.name,
        module=module,
        window=window_of(folder.config),
        positions=known.positions,
        bidirectional_prompt=known.bidirectional_prompt,
    )


def _encoded(
    library: Library, folder: Folder, given: Given, vocab_size: int
) -> tuple[tuple[int, ...], ...]:
    texts = read_texts(given.prompts)
    check_tokenizer(folder.path)
    found = encoded(library, folder.path, texts, trusted=given.trusted)
    kept = tuple(ids for ids in found if ids)
    if not kept:
        raise CheckpointError(f"{folder.path}: its tokenizer makes no token of any prompt")
    largest = max(max(ids) for ids in kept)
    if largest >= vocab_size:
        raise CheckpointError(
            f"{folder.path}: the tokenizer gives token {largest}, and 'vocab_size' in config.json "
            f"is {vocab_size}: they belong to different models"
        )
    return kept
