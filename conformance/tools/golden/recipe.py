"""The requests of a family's golden, and the hash of everything that determines its numbers."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from conformance.core.errors import GoldenError
from conformance.core.family import Family
from conformance.core.schedule import Media, Request
from conformance.scenarios.build import LONG, MEDIUM, SHORT, TWO, media_request, text_request
from conformance.scenarios.scenario import Brief, ComposeFn
from conformance.tools.golden.format import FORMAT

DTYPE, SEED = "float32", 0
"""The dtype of all goldens: in float32 defects are easiest to distinguish from rounding."""

# One more than `OUTPUT`, so that the window of the shortest families is passed while decoding.
_TOKENS = 6

# Fields of a family file's section that affect neither weights nor prompts.
_NEUTRAL = frozenset(
    {"notes", "quick", "pooled", "uncut_media", "positions", "drafters", "bidirectional_prompt"}
)


def golden_requests(brief: Brief) -> tuple[Request, ...]:
    """Prompts from two tokens to more than the window, and one with each kind of media.

    The media requests are those that are batched with text in the scenario ``mixed_modality``.
    """
    long = LONG if brief.window is None else max(LONG, 2 * brief.window + 3)
    lengths = {"two": TWO, "short": SHORT, "medium": MEDIUM, "long": long}
    requests = [text_request(brief, name, n, max_tokens=_TOKENS) for name, n in lengths.items()]
    kinds = [kind for kind in brief.modalities if kind != "text"]
    return (*requests, *(media_request(brief, kind, kind, max_tokens=_TOKENS) for kind in kinds))


def brief_of(family: Family, compose: ComposeFn) -> Brief:
    """The facts of a family for ``golden_requests``, without an engine."""

    def unknown(*_: object) -> None:
        raise GoldenError("a golden's requests do not depend on a single stream")

    facts = family.facts
    return Brief(
        tokens=family.tokens,
        window=facts.window if family.checkpoint is None else None,
        bounded=False,
        seed=SEED,
        capabilities=frozenset(),
        probes=(),
        solo=unknown,  # type: ignore[arg-type]
        modalities=facts.modalities,
        sizes=facts.sizes,
        required=facts.required,
        beside=facts.beside,
        single=facts.single,
        compose=compose,
        texts=family.checkpoint.texts if family.checkpoint is not None else (),
    )


def recipe_hash(family: Family) -> str:
    """SHA-256 of the config and of everything else that determines weights and prompts.

    No model is needed.

    Raises:
        GoldenError: the family's own model file cannot be read.
    """
    facts = _plain(family.facts)
    requests = golden_requests(brief_of(family, _placeholders))
    hashed = {
        "format": FORMAT,
        "dtype": DTYPE,
        "seed": SEED,
        "config": family.config,
        "facts": {name: value for name, value in facts.items() if name not in _NEUTRAL},
        "model_file": _model_file(family),
        "requests": _plain(requests),
    }
    if family.checkpoint is not None:
        hashed["checkpoint"] = family.checkpoint.digest
    return hashlib.sha256(json.dumps(hashed, sort_keys=True).encode()).hexdigest()


def _plain(value: Any) -> Any:
    """``value`` as plain data without fields at their defaults.

    Thus a field added in a later release does not make goldens stale.
    """
    if isinstance(value, msgspec.Struct):
        fields = msgspec.structs.fields(value)
        return {
            field.name: _plain(got)
            for field in fields
            if (got := getattr(value, field.name)) not in _defaults(field)
        }
    if isinstance(value, dict):
        return {str(name): _plain(item) for name, item in value.items()}
    if isinstance(value, tuple | list):
        return [_plain(item) for item in value]
    return value


def _defaults(field: msgspec.structs.FieldInfo) -> tuple[Any, ...]:
    if field.default is not msgspec.NODEFAULT:
        return (field.default,)
    return () if field.default_factory is msgspec.NODEFAULT else (field.default_factory(),)


def _placeholders(
    parts: Sequence[tuple[int, ...] | Media],
) -> tuple[tuple[int, ...], tuple[Media, ...]]:
    """A prompt with -1 for each medium: only a processor knows its tokens."""
    tokens = [(-1,) if isinstance(part, Media) else part for part in parts]
    media = tuple(part for part in parts if isinstance(part, Media))
    return tuple(token for part in tokens for token in part), media


def _model_file(family: Family) -> str:
    """The text of the family's Python file, and of the modules of this package that it imports."""
    if not family.facts.model_file:
        return ""
    path = Path(family.path).parent / family.facts.model_file
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise GoldenError(f"{path}: cannot read the model file: {error.strerror}") from error
    return text + "".join(own.read_text(encoding="utf-8") for own in _own_modules(text))


def _own_modules(text: str) -> list[Path]:
    """The files of this package's modules that a text imports from; nothing is executed."""
    names = re.findall(r"^from (conformance\.[\w.]+) import ", text, re.MULTILINE)
    specs = [importlib.util.find_spec(name) for name in sorted(set(names))]
    return [Path(spec.origin) for spec in specs if spec is not None and spec.origin]
