"""Shrinks a full-size config with a table of named rules, one function each.

A rule recognises fields by their meaning. A field that no rule knows stays unchanged; if it is
large, it is reported with the reason, for a person to review.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from conformance.core.errors import AdoptionError
from conformance.tools.new_family import depths, experts, positions, vision, widths
from conformance.tools.new_family.config_checks import check, fill, left_over
from conformance.tools.new_family.draft import Decision, Draft, Fields, Place, Tower, Unshrunk

Rule = Callable[[Tower], None]

# In order: rules use decisions of the rules above them.
TEXT_RULES: Mapping[str, Rule] = {
    "hidden size": widths.hidden,
    "heads": widths.heads,
    "size of a head": widths.head_sizes,
    "feed-forward": widths.feeds,
    "token indexer": widths.indexer,
    "expert routing": experts.routing,
    "prediction layers": experts.prediction,
    "state space": depths.state_space,
    "linear attention": depths.linear_attention,
    "depth": depths.depth,
    "windows": positions.windows,
    "lengths": positions.lengths,
    "rotation base": positions.bases,
    "rotary part": positions.rotary_part,
    "rotation scaling": positions.scalings,
    "vocabulary": widths.vocabulary,
    "places of images": vision.places_of_images,
}
VISION_RULES: Mapping[str, Rule] = {
    "blocks": vision.blocks,
    "widths of a tower": vision.sizes,
    "pictures": vision.pictures,
    "rotation base": positions.bases,
    "lengths": positions.lengths,
}
_TEXT_NAMES = ("text_config", "llm_config", "language_config")
_WITHIN = ("linear_attn_config",)
_ROOT_ALONE = ("mm_tokens_per_image",)
_QUANTIZED = ("quantization", "quantization_config", "compression_config")


@dataclass(frozen=True)
class Shrunk:
    """A tiny config and how it was made.

    Attributes:
        files: the processor's files, shrunk likewise.
        special: the new id of each special token, by the original one.
        sizes: of the vision tower, if there is one.
        text_end: one past the last token id that text may use.
        layers, original_layers: the number of layers after and before shrinking.
    """

    config: Fields
    decisions: tuple[Decision, ...]
    unshrunk: tuple[Unshrunk, ...]
    files: dict[str, Fields]
    special: dict[int, int]
    sizes: dict[str, int]
    text_end: int
    layers: int
    original_layers: int


def shrink(
    config: Fields,
    *,
    settings: Iterable[Mapping[str, Any]] = (),
    files: Mapping[str, Fields] | None = None,
    special: Iterable[int] = (),
    layers_least: int = 0,
) -> Shrunk:
    """A tiny config with every kind of layer of the full one.

    Args:
        settings: the library's settings for the config, with its defaults.
        files: the JSON files of the processor.
        special: ids of further special tokens that the tokenizer names.
        layers_least: the fewest layers of the language model.

    Raises:
        AdoptionError: the config describes no language model, or contradicts itself.
    """
    draft = Draft(copy.deepcopy(config))
    root = Place.of("", draft.config)
    draft.rule = "quantization"
    for key in [key for key in _QUANTIZED if key in draft.config]:
        draft.drop(root, key, "weights are drawn in the working dtype, not quantized")
    text, towers = _towers(draft, root, layers_least)
    for tower in (text, *towers):
        fill(tower, list(settings))
    check(text)
    _apply(TEXT_RULES, text)
    for tower in towers:
        _apply(VISION_RULES, tower)
    everywhere = Tower("text", [*text.places, *(p for t in towers for p in t.places[:1])], draft)
    places = _each_once(everywhere.places)
    draft.rule = "special tokens"
    ids = list(dict.fromkeys([*widths.special_ids(places), *special]))
    table = widths.moved(ids)
    widths.special(Tower("text", places, draft), table)
    seen = next((t.sizes for t in towers if "image" in t.sizes), {})
    shrunk_files = vision.shrunk_files(dict(files or {}), seen) if seen else {}
    left = tuple(left_over(draft, places))
    end = widths.text_end(len(ids))
    return Shrunk(
        draft.config,
        tuple(draft.decisions),
        left,
        shrunk_files,
        table,
        seen,
        end,
        layers=text.sizes["layers"],
        original_layers=text.number(*depths.COUNTS) or 0,
    )


def _apply(rules: Mapping[str, Rule], tower: Tower) -> None:
    """Apply every rule, in order."""
    for name, rule in rules.items():
        tower.draft.rule = name
        try:
            rule(tower)
        except Exception as error:
            reason = f"{type(error).__name__}: {error}"
            raise AdoptionError(
                f"the rule {name!r} can't read the config's {tower.kind} fields: {reason}"
            ) from error


def _towers(draft: Draft, root: Place, layers_least: int) -> tuple[Tower, list[Tower]]:
    """The language model, and the vision and audio towers."""
    named = [
        Place.of(key, value)
        for key, value in draft.config.items()
        if isinstance(value, dict) and key in _TEXT_NAMES and value
    ]
    within = [
        Place.of(f"{place.path}.{key}".lstrip("."), value)
        for place in (*named, root)
        for key, value in place.now.items()
        if key in _WITHIN and isinstance(value, dict)
    ]
    text = Tower("text", [*named, root, *within], draft, layers_least=layers_least)
    towers = [
        Tower("audio" if "audio" in key else "vision", [Place.of(key, value), root], draft)
        for key, value in draft.config.items()
        if isinstance(value, dict) and ("vision" in key or "audio" in key) and value
    ]
    for tower in towers:
        # Of the enclosing config, only the fields about images concern a tower.
        original = {k: v for k, v in root.original.items() if k in (*_ROOT_ALONE, *vision.MERGES)}
        tower.places[1] = Place("", root.now, original)
    return text, towers


def _each_once(places: list[Place]) -> list[Place]:
    return list({place.path: place for place in reversed(places) if place.original}.values())
