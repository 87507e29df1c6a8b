"""A tiny processor for a family with media: special tokens, files, and the text of an image.

The model's own files come first. If there are none, an installed family of the same module
provides the texts of its tokens and its files; their sizes and ids are adapted to this config.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec

from conformance.core.engine_options import EngineOptions
from conformance.core.errors import AdoptionError, ModelError
from conformance.core.family import Facts, Family, Processor, StandIn, Tokenizer
from conformance.core.library import Library
from conformance.core.schedule import Media, Request
from conformance.tools.new_family.shrink import Shrunk
from conformance.tools.new_family.source import Source
from conformance.tools.new_family.vision import PATCH, shrunk_files
from conformance.tools.new_family.widths import VOCAB, is_special

TEXT_ONLY = Facts(stand_in=StandIn("fixed", unloadable=True))
"""No processor: only the tokenizer is loaded, and prompts are text."""


def proposals(source: Source, shrunk: Shrunk, known: Family | None) -> Iterator[tuple[Facts, str]]:
    """Candidate facts about media, with their origin; best first."""
    if source.files and source.texts:
        processor = _from_files(source, shrunk)
        for marker in _markers(source):
            facts = Facts(
                modalities=("text", "image"),
                processor=msgspec.structs.replace(processor, markers={"image": marker}),
                sizes={"image": _sizes(shrunk)},
            )
            origin = f"images: from {', '.join(source.files)}; {marker!r} marks one"
            yield facts, origin
    has_facts = known is not None and (known.facts.processor or known.facts.stand_in)
    if known is not None and has_facts and shrunk.sizes:
        yield (
            _adapted(known, shrunk),
            f"media: processor facts of the installed family {known.name}",
        )
    yield TEXT_ONLY, "media: left out, the files of its processor are not known"


def _from_files(source: Source, shrunk: Shrunk) -> Processor:
    special = {
        text: shrunk.special[token]
        for token, text in source.texts.items()
        if token in shrunk.special
    }
    special = _unique(special)
    roles = {role: text for role, text in source.roles.items() if text in special}
    return Processor(Tokenizer(special, roles), shrunk.files)


def _unique(special: dict[str, int]) -> dict[str, int]:
    """Keep one text per id: ids past the end of the vocabulary were mapped to the last one."""
    return {text: token for token, text in {t: x for x, t in reversed(special.items())}.items()}


def _markers(source: Source) -> list[str]:
    """Texts that may mark an image in a prompt, most likely first."""

    def text(*keys: str) -> str:
        ids = [source.config[key] for key in keys if isinstance(source.config.get(key), int)]
        return next((source.texts[token] for token in ids if token in source.texts), "")

    image = text("image_token_id", "image_token_index")
    begin, end = text("vision_start_token_id"), text("vision_end_token_id")
    found = [begin + image + end if begin and end else "", text("boi_token_index"), image]
    found += [source.roles.get("image_token", ""), source.roles.get("boi_token", "")]
    return [marker for marker in dict.fromkeys(found) if marker]


def _sizes(shrunk: Shrunk) -> tuple[tuple[int, ...], ...]:
    edge, unit = shrunk.sizes["image"], PATCH * shrunk.sizes["merge"]
    return ((edge, edge), (edge + 2 * unit, edge))


def _adapted(known: Family, shrunk: Shrunk) -> Facts:
    """The facts of an installed family, with the sizes and token ids of this config."""
    processor = known.facts.processor or Processor()
    here = dict(_ids(shrunk.config))
    same = {token: here[path] for path, token in _ids(known.config) if path in here}
    free = iter(sorted(set(range(shrunk.text_end, VOCAB)) - set(same.values()), reverse=True))
    special = {
        text: same[token] if token in same else next(free)
        for text, token in processor.tokenizer.special.items()
    }
    files = shrunk_files(processor.files, shrunk.sizes)
    tokenizer = Tokenizer(_unique(special), processor.tokenizer.roles, processor.tokenizer.kind)
    return Facts(
        modalities=known.facts.modalities,
        processor=Processor(tokenizer, files, processor.markers, processor.begin)
        if known.facts.processor
        else None,
        stand_in=_fitted(known.facts.stand_in, same, shrunk),
        sizes={**known.facts.sizes, "image": _sizes(shrunk)},
        bidirectional_prompt=known.facts.bidirectional_prompt,
        uncut_media=known.facts.uncut_media,
        required=known.facts.required,
        beside=known.facts.beside,
        single=known.facts.single,
    )


def _ids(config: Mapping[str, Any]) -> Iterator[tuple[str, int]]:
    """Single special tokens of a config, by field."""
    for key, value in config.items():
        if is_special(key) and isinstance(value, int):
            yield key, value


def _fitted(stand_in: StandIn | None, same: dict[int, int], shrunk: Shrunk) -> StandIn | None:
    if stand_in is None or stand_in.kind != "fixed":
        return stand_in
    edge = shrunk.sizes["image"]
    places = (edge // PATCH // shrunk.sizes["merge"]) ** 2
    token = stand_in.args["token"]
    args = {**stand_in.args, "size": edge, "tokens": places, "token": same.get(token, token)}
    return msgspec.structs.replace(stand_in, args=args)


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
            failed = failed or refusal_text(error)
            continue
        return family, model, f"{origin} ({failed})" if failed else origin
    raise AdoptionError(f"{source.path}: made small: {failed}")


def _try_media(library: Library, model: Any, family: Family) -> None:
    """Decode a prompt with each kind of media."""
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


def refusal_text(error: Exception) -> str:
    """An error's message on one line; for a constructor's error, the names of missing fields."""
    message = " ".join(str(error).split())
    if missing := _MISSING.search(message):
        return f"the config lacks {missing.group(1)}, without which the model can't be built"
    return message
