"""A checkpoint folder as a family: the same cases, on real weights and real text."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from conformance.backend.memory import available_bytes
from conformance.checks.expectations import Expectations
from conformance.core.engine import Engine
from conformance.core.errors import CheckpointError, FamilyError, ModelError, Unsupported
from conformance.core.family import Checkpoint, Facts, Family
from conformance.core.library import Library
from conformance.core.remote_code import sealed
from conformance.core.user_files import read_text
from conformance.reference.sealed import why_unwritable
from conformance.run.registry import Registry
from conformance.tools.checkpoints.finite import check_finite
from conformance.tools.checkpoints.folder import Folder, look, window_of
from conformance.tools.checkpoints.given import Given
from conformance.tools.checkpoints.tokenizing import check_tokenizer, encoded
from conformance.tools.golden.checking import check
from conformance.tools.golden.format import golden_path
from conformance.tools.golden.recipe import DTYPE
from conformance.tools.golden.staging import accept, propose

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


# Texts from which a checkpoint's prompts are cut --------------------------------------------------

# Texts of various kinds; each begins with a different word, so that short prompts differ.
BUILT_IN = (
    "The lighthouse keeper counted the ships again and wrote each name into the long grey book.",
    "def area(width, height):\n    return width * height  # both in metres",
    "Why do leaves turn red in autumn, and why do some trees keep theirs until spring?",
    '{"city": "Lisbon", "temperature": 19.5, "wind": {"speed": 12, "from": "north-west"}}',
    "Translate into German: my sister has bought two tickets for the train at half past seven.",
    "1. Whisk three eggs. 2. Melt the butter. 3. Pour, wait a minute, fold, and serve at once.",
    "Once upon a time a clockmaker built a bird that sang only when nobody was listening.",
    "SELECT name, COUNT(*) FROM orders WHERE year = 2024 GROUP BY name ORDER BY 2 DESC;",
    "Dear committee, thank you for your letter of 3 May; I accept the invitation with pleasure.",
    "If a train leaves at noon and travels 240 km in three hours, how fast does it go?",
    "User: my screen stays black after the update. Assistant: does the fan still turn?",
    "Energy is neither made nor lost; it only changes its form, from motion to heat and back.",
)


def read_texts(path: Path | None) -> tuple[str, ...]:
    """The texts of a file, one per line; the built-in ones without a file.

    Raises:
        CheckpointError: the file can't be read, is not UTF-8, or holds no text.
    """
    if path is None:
        return BUILT_IN
    lines = read_text(path, CheckpointError).splitlines()
    texts = tuple(line for line in lines if line.strip())
    if not texts:
        raise CheckpointError(f"{path}: holds no prompt; write one text a line")
    return texts


# Checks before a checkpoint is loaded: memory, and whether weights and config agree ---------------

# The widest batch of the ladder, and the step in which the libraries' caches grow, in tokens.
_ROWS, _BLOCK = 33, 256
_LONGEST = 300  # characters of the library's message
_MISSING = re.compile(r"missing \d+ required (?:positional|keyword-only) arguments?: (.+)")


@dataclass(frozen=True)
class Memory:
    """Bytes that a run needs and that are available; ``available`` is ``None`` if unknown."""

    weights: int
    caches: int
    available: int | None

    @property
    def suffices(self) -> bool:
        """Whether the checkpoint can run here."""
        return self.available is None or self.weights + self.caches <= self.available

    def __str__(self) -> str:
        there = "unknown" if self.available is None else _gigabytes(self.available)
        return (
            f"{_gigabytes(self.weights)} of weights and about {_gigabytes(self.caches)} of caches "
            f"are needed, {there} available"
        )


def room(folder: Folder, dtype: str, *, force: bool = False) -> Memory:
    """The memory that a checkpoint needs in a dtype.

    Raises:
        CheckpointError: less is available, unless ``force``.
    """
    memory = Memory(folder.nbytes(dtype), cache_bytes(folder.config, dtype), available_bytes())
    if not memory.suffices and not force:
        raise CheckpointError(f"{folder.path}: {memory}; --force runs it all the same")
    return memory


def cache_bytes(config: Mapping[str, Any], dtype: str) -> int:
    """Keys and values of the widest batch, in bytes; 0 if the config lacks the sizes.

    An upper bound: some layers keep less than the keys and values of all tokens.
    """
    text = {**config, **(config.get("text_config") or {})}
    names = ("num_hidden_layers", "num_attention_heads", "hidden_size")
    found = [text[name] for name in names if isinstance(text.get(name), int) and text[name] > 0]
    if len(found) < len(names):
        return 0
    layers, heads, hidden = (int(number) for number in found)
    kept = _count(text.get("num_key_value_heads")) or heads
    size = _count(text.get("head_dim")) or hidden // heads
    return _ROWS * _BLOCK * layers * 2 * kept * size * (4 if dtype == "float32" else 2)


def _count(value: object) -> int:
    """A number from a config; 0 if the value is not a number."""
    return value if isinstance(value, int) else 0


def fits(library: Library, folder: Folder, *, trusted: bool) -> None:
    """Check with the library's own loader that config and weights agree.

    Raises:
        CheckpointError: the config lacks a field, or a parameter does not agree with it.
        Unsupported: the library has no such model.
    """
    try:
        library.check(folder.path, trusted=trusted)
    except Unsupported as error:
        message = " ".join(str(error).split())
        raise Unsupported(f"{folder.path}: {_short(message)}") from error
    except ModelError as error:
        message = " ".join(str(error).split())
        if found := _MISSING.search(message):
            raise CheckpointError(
                f"{folder.path / 'config.json'}: lacks the field {found[1]}, which {library.name} "
                f"needs for a {folder.config['model_type']}"
            ) from error
        raise CheckpointError(f"{_place(folder, message)}: {_short(message)}") from error


def _place(folder: Folder, message: str) -> Path:
    """The file of the first tensor that the message names; the folder if it names none."""
    named = [name for name in folder.tensors if re.search(rf"\b{re.escape(name)}\b", message)]
    first = min(named, key=message.index, default=None)
    return folder.path if first is None else folder.path / folder.tensors[first].file


def _short(message: str) -> str:
    return message if len(message) <= _LONGEST else message[:_LONGEST].rsplit(" ", 1)[0] + " ..."


def _gigabytes(count: int) -> str:
    return f"{count / 1e9:.3g} GB"


# A checkpoint's golden in a user's folder: the first run writes it, later runs compare with it.
@dataclass(frozen=True)
class Held:
    """The result for a checkpoint's golden: whether it holds, and messages about it."""

    good: bool
    messages: tuple[str, ...]


def hold(
    library: Library,
    family: Family,
    root: Path,
    *,
    engines: Sequence[type[Engine]] = (),
    expectations: Expectations | None = None,
    force: bool = False,
) -> Held:
    """Compare the checkpoint with its golden below ``root``; if there is none, write it.

    A golden is in float32 whatever the checkpoint's dtype: there defects are easiest to distinguish
    from rounding, and the golden holds on every device.

    Raises:
        CheckpointError: a run in float32 needs more memory than is available, unless ``force``.
        GoldenError: the golden can't be written.
    """
    assert family.checkpoint is not None
    room(look(Path(family.checkpoint.folder)), DTYPE, force=force)
    path = golden_path(root, library.name, family.name)
    pair = (library, family)
    if not path.exists():
        made = propose(pair, root=root, expectations=expectations)
        if made.refused:
            return Held(good=False, messages=(f"{path}: no golden was written: {made.refused}",))
        accept([made])
        return Held(good=True, messages=(f"{path}: written, as there was none",))
    found = check(pair, root=root, engines=engines, files_only=False, expectations=expectations)
    if found.problems:
        again = "if the change is intended, remove it, and the next run writes a new one"
        problems = [text.partition("; `conformance golden")[0] for text in found.problems]
        return Held(good=False, messages=(*problems, f"{path}: {again}"))
    differences = [str(difference) for difference in found.differences]
    return Held(found.good, (f"{path}: {found.meaning}", *differences))
