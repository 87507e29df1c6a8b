"""Loads a tiny family for the first time, to find a processor that works with it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from conformance.core.engine_options import EngineOptions
from conformance.core.errors import AdoptionError, ModelError
from conformance.core.family import Facts, Family
from conformance.core.library import Library
from conformance.core.schedule import Media, Request
from conformance.tools.new_family.processing import proposals
from conformance.tools.new_family.shrink import Shrunk
from conformance.tools.new_family.source import Source

_MISSING = re.compile(r"missing \d+ required (?:positional|keyword-only) arguments?: (.*)$")


def offered(
    source: Source, shrunk: Shrunk, bare: Family, known: Family | None
) -> Iterator[tuple[Family, str]]:
    """The family with each candidate processor, the best first, and the processor's origin."""
    offers: Iterable[tuple[Facts, str]] = ((Facts(), ""),)
    if bare.facts.library == "mlx_vlm" and shrunk.sizes:
        offers = proposals(source, shrunk, known)
    for media, origin in offers:
        facts = msgspec.structs.replace(
            media,
            library=bare.facts.library,
            module=bare.facts.module,
            model_file=bare.facts.model_file,
            tokens=(1, shrunk.text_end),
            strip=known.facts.strip if known is not None else "",
        )
        yield msgspec.structs.replace(bare, facts=facts), origin


def first_loadable(
    source: Source, offers: Iterable[tuple[Family, str]], library: Library
) -> tuple[Family, Any, str]:
    """The first family that works, its model, and its processor's origin."""
    failed = ""
    for family, origin in offers:
        try:
            model = library.load(family, dtype="float32", seed=0)
            _try_media(library, model, family)
        except ModelError as error:
            failed = failed or error_text(error)
            continue
        return family, model, f"{origin} ({failed})" if failed else origin
    raise AdoptionError(f"{source.path}: made small: {failed}")


def _try_media(library: Library, model: Any, family: Family) -> None:
    """Decode a prompt with each kind of media.

    Raises:
        ModelError: decoding fails.
    """
    low, _ = family.tokens
    for kind, sizes in family.facts.sizes.items():
        for size in sizes:
            try:
                parts: list[tuple[int, ...] | Media] = [
                    (low, low + 1),
                    Media(kind, size, 0),
                    (low + 2,),
                ]
                prompt, media = library.compose(model, parts)
                request = Request("trial", prompt, 1, media=media)
                library.single_stream(model, request, options=EngineOptions(), steps=1)
            except ModelError:
                raise
            except Exception as error:
                name = type(error).__name__
                raise ModelError(f"a prompt with {kind} failed: {name}: {error}") from error


def error_text(error: Exception) -> str:
    """An error's message on one line; for a constructor's error, the names of missing fields."""
    message = " ".join(str(error).split())
    if missing := _MISSING.search(message):
        return f"the config lacks {missing.group(1)}, without which the model can't be built"
    return message
