"""What an engine conforms at, in words that a person can repeat: groups of scenarios."""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase


@dataclass(frozen=True)
class Level:
    """A group of scenarios with one name, as in "conforms at together, late join".

    Attributes:
        scenarios: names, or globs of names.
        base: all later scenarios have its ingredients, too: what is wrong here is wrong there.
    """

    name: str
    scenarios: tuple[str, ...]
    base: bool = False

    def has(self, scenario: str) -> bool:
        """Whether the scenario belongs to it."""
        return any(fnmatchcase(scenario, glob) for glob in self.scenarios)


LEVELS: tuple[Level, ...] = (
    Level(
        "alone",
        (
            "repeat",
            "rechunked",
            "batch_of_one",
            "stale_state",
            "served_alone",
            "served_endpoints",
        ),
        base=True,
    ),
    Level(
        "together", ("identical", "equal_length", "ragged", "wide", "served_together"), base=True
    ),
    Level("prefill in pieces", ("chunked", "window"), base=True),
    Level(
        "late join",
        ("staggered", "early_finish", "slot_reuse", "served_joins", "served_ends", "served_slots"),
        base=True,
    ),
    Level("cancel", ("cancelled", "traffic_leaves", "served_leaves"), base=True),
    Level(
        "prefixes",
        (
            "prompt_cache",
            "held",
            "prefix_caching",
            "kept",
            "prefix_store",
            "traffic_kept",
            "served_prefixes",
            "served_systems",
            "served_image_prefixes",
        ),
    ),
    Level(
        "media",
        (
            "images_together",
            "mixed_modality",
            "media_in_pieces",
            "traffic_media",
            "served_media",
        ),
    ),
    Level(
        "sampling",
        (
            "stop_sequences",
            "samplers",
            "distributions",
            "structured",
            "traffic_options",
            "served_stops",
            "served_samplers",
            "served_traffic",
            "served_draws",
            "served_schemas",
        ),
    ),
    Level("drafts", ("speculative", "traffic_drafts")),
    Level("quantized", ("quantized", "traffic_quantized", "served_quantized")),
    Level("load", ("traffic", "marathon", "threads", "corpus", "served_flood")),
    Level("text and tools", ("served_text", "served_tools", "served_markers")),
    Level("models and options", ("served_models", "served_adapters", "served_options")),
    Level("wrong calls", ("invalid", "served_malformed")),
    Level("cost", ("cost_*",)),
)
"""All levels, in the order of the ladder; each scenario belongs to one."""


def builds_on(scenario: str, lower: str) -> bool:
    """Whether a scenario has the ingredients of one below it, whose defects then show in it, too.

    Scenarios of one level share theirs; nothing is known of a scenario without a level.
    """
    own, other = (next((one for one in LEVELS if one.has(n)), None) for n in (scenario, lower))
    return own is None or other is None or other.base or own is other
