"""A family: one model architecture as one JSON file.

The file is a tiny but valid ``config.json`` for the library, with an additional key,
``conformance``. This section has what a config lacks: the library and module, how weights are
made, which token ids prompts may use.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from conformance.core.config_fields import check_config
from conformance.core.errors import FamilyError
from conformance.core.plain_text import is_plain
from conformance.core.user_files import parse_object, read_text, typed

SECTION = "conformance"


class WeightRule(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """How parameters whose path matches the glob ``match`` are drawn.

    ``mean + std * z`` with z of unit variance or, with ``fan_in``, ``std / sqrt(fan_in) * z``.
    """

    match: str
    mean: float = 0.0
    std: float = 0.0
    fan_in: bool = False


class Recipe(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """A family's weights: rules that take precedence over the default rules of ``weights.py``.

    ``embedding_std`` is the standard deviation of token embeddings; ``logit_scale`` multiplies the
    output head or, if the head is tied, the final norm's weight. ``packed``: the weights of linear
    layers and embeddings of the language model are quantized as ``quantization`` in the config
    says, as in a published checkpoint.
    """

    embedding_std: float = 1.0
    logit_scale: float = 1.0
    rules: tuple[WeightRule, ...] = ()
    packed: bool = False


class Tokenizer(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """The special tokens of a family's tiny tokenizer; every other id is a word.

    ``special`` maps texts to ids; ``roles`` maps roles to texts (``eos_token``, ``pad_token``,
    ``image_token``, ...); ``kind`` is the class named in ``tokenizer_config.json``.
    """

    special: dict[str, int] = {}
    roles: dict[str, str] = {}
    kind: str = "PreTrainedTokenizerFast"


class Processor(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """The files in the model's folder from which the library's own processor is made.

    ``files`` are JSON files by name (``preprocessor_config.json``, ...); ``markers`` maps each kind
    of media to the text that stands for one medium in a prompt; ``begin`` is the number of tokens
    that the processor adds before every prompt with media.
    """

    tokenizer: Tokenizer = Tokenizer()
    files: dict[str, dict[str, Any]] = {}
    markers: dict[str, str] = {}
    begin: int = 0


class StandIn(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """Replaces a processor that can't be made here: the stand-in's name and arguments.

    ``unloadable``: the processor can't even be loaded, so only the tokenizer is loaded.
    """

    kind: str
    args: dict[str, Any] = {}
    unloadable: bool = False


class Facts(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """The ``conformance`` section of a family file.

    Attributes:
        library: the library plugin that builds and loads the family (``mlx_lm``).
        module: the library's module that the family covers; default: the file's name.
        modalities: what requests may contain besides text.
        tokens: ``[low, high)``, the token ids that prompts are drawn from; if absent, the whole
            vocabulary.
        window: the smallest sliding window or chunk, in tokens; absent for full attention.
        seed: shifts the weights' seed, if seed 0 gave a model with a near-tie or a repetitive
            stream.
        positions: ``False`` if by design no layer uses absolute or relative positions.
        model_file: a Python file in the family file's folder with ``Model`` and ``ModelArgs``, for
            a model that the library does not ship.
        strip: a prefix of parameter paths that the checkpoint omits, for a library that reads only
            checkpoints with a model's original names.
        processor: how to make the library's own processor, if it can be made.
        stand_in: makes the inputs in place of a processor.
        sizes: for each kind of media the sizes that scenarios use, the most used first; see
            ``schedule.Media``.
        bidirectional_prompt: the tokens of a prompt attend to each other in both directions, so a
            pass without a cache, in which generated tokens join the prompt, checks only the first
            token.
        uncut_media: file and line of the library's code that never cuts a prompt with media into
            pieces; empty if it does.
        required: a kind of media that every request must contain, for models that only describe an
            image; such media may have no place in the prompt.
        beside: the language model attends to media by cross attention, not at positions of the
            sequence.
        single: the kinds of media of which a request may contain only one.
        drafters: for each kind of drafter, the config of a tiny drafter for this family.
        quick: included in quick runs: represents all families with its kinds of caches.
        pooled: represents what a prefix pool stores: blocks, or snapshots of its kinds of caches.
        notes: remarks for readers of the config.
    """

    library: str = "mlx_lm"
    module: str = ""
    modalities: tuple[str, ...] = ("text",)
    tokens: tuple[int, int] | None = None
    window: int | None = None
    seed: int = 0
    positions: bool = True
    model_file: str | None = None
    weights: Recipe = Recipe()
    strip: str = ""
    processor: Processor | None = None
    stand_in: StandIn | None = None
    sizes: dict[str, tuple[tuple[int, ...], ...]] = {}
    bidirectional_prompt: bool = False
    uncut_media: str = ""
    required: str = ""
    beside: bool = False
    single: tuple[str, ...] = ()
    drafters: dict[str, dict[str, Any]] = {}
    quick: bool = False
    pooled: bool = False
    notes: str = ""


class Checkpoint(msgspec.Struct, frozen=True):
    """A real checkpoint in place of a tiny model; no weights are drawn or written.

    Attributes:
        folder: config, safetensors and tokenizer, for the library's own loader.
        digest: SHA-256 of config and weights; empty if not computed.
        texts: token ids of the texts that prompts are cut from.
        trusted: whether Python files in the folder may be run.
        cache: folder that keeps the oracle's output; empty if none.
    """

    folder: str
    digest: str = ""
    texts: tuple[tuple[int, ...], ...] = ()
    trusted: bool = False
    cache: str = ""


class Family(msgspec.Struct, frozen=True):
    """A model architecture that can be built tiny. ``config`` is the config that the library reads.

    With ``checkpoint`` it is a real model instead of a tiny one.
    """

    name: str
    facts: Facts
    config: dict[str, Any]
    path: str = ""
    checkpoint: Checkpoint | None = None

    @property
    def module(self) -> str:
        """The library's module that this family covers."""
        return self.facts.module or self.name

    @property
    def vocab_size(self) -> int:
        """Number of token ids, from the config or the config of its text tower."""
        return int(self._text("vocab_size"))

    @property
    def tokens(self) -> tuple[int, int]:
        """The half-open range of token ids that prompts are drawn from."""
        return self.facts.tokens or (1, self.vocab_size)

    @property
    def longest(self) -> int | None:
        """The largest number of positions that the config names, in tokens."""
        found = self.config.get("n_positions")
        return None if found is None else int(found)

    def _text(self, key: str) -> Any:
        for config in (self.config, self.config.get("text_config", {})):
            if key in config:
                return config[key]
        raise FamilyError(f"{self.path or self.name}: the config has no {key!r}")


def parse_family(text: str, *, name: str, path: str = "") -> Family:
    """Parse a family from the text of its file.

    Raises:
        FamilyError: the text is not a JSON object, or its ``conformance`` section is malformed or
            contradicts the config; the message names the file and the field.
    """
    where = path or name
    config = parse_object(text, where, FamilyError)
    section = config.pop(SECTION, {})
    facts = typed(section, Facts, f"{where}: section {SECTION!r}", FamilyError)
    _check_code(facts, config, where)
    check_config(config, where, FamilyError)
    family = Family(name=name, facts=facts, config=config, path=path)
    try:
        low, high = family.tokens
        size, _ = family.vocab_size, family.longest
    except (TypeError, ValueError, OverflowError, AttributeError) as error:
        raise FamilyError(
            f"{where}: the field 'vocab_size', 'n_positions' or 'text_config' is not as it must be"
        ) from error
    if not 0 <= low < high <= size:
        raise FamilyError(
            f"{where}: tokens [{low}, {high}) is not a range within vocab_size {size}"
        )
    return family


def _check_code(facts: Facts, config: dict[str, Any], where: str) -> None:
    """Check that a family file only names code in its own folder."""
    if "model_file" in config:
        raise FamilyError(f"{where}: 'model_file' belongs into the section {SECTION!r}")
    file = facts.model_file
    if file is not None and (Path(file).name != file or not file.endswith(".py")):
        raise FamilyError(
            f"{where}: section {SECTION!r}: 'model_file' must be the name of a Python file beside "
            f"this one, is {file!r}"
        )


def load_family(path: Path) -> Family:
    """Read the family of a file; its name is the file's stem.

    Raises:
        FamilyError: the file is missing, unreadable or malformed.
    """
    if not is_plain(path.stem) or "/" in path.stem:
        raise FamilyError(f"{path}: its name, which is the family's, has invisible characters")
    family = parse_family(read_text(path, FamilyError), name=path.stem, path=str(path))
    file = family.facts.model_file
    if file is not None and not (path.parent / file).is_file():
        raise FamilyError(
            f"{path}: section {SECTION!r}: 'model_file' names {file}, and there is no such file "
            "beside this one"
        )
    return family


def load_families(folder: Path) -> tuple[Family, ...]:
    """All families in a folder's ``*.json``, by name; files that begin with ``_`` are skipped."""
    return tuple(
        load_family(path) for path in sorted(folder.glob("*.json")) if not path.name.startswith("_")
    )
