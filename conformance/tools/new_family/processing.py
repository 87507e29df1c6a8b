"""A tiny processor for a family with media: special tokens, files, and the text of an image.

The model's own files come first. If there are none, an installed family of the same module
provides the texts of its tokens and its files; their sizes and ids are adapted to this config.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from conformance.core.family import Facts, Family, Processor, StandIn, Tokenizer
from conformance.tools.new_family.shrink import Shrunk
from conformance.tools.new_family.source import Source
from conformance.tools.new_family.vision import PATCH, shrunk_files
from conformance.tools.new_family.vocabulary import VOCAB, is_special

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
