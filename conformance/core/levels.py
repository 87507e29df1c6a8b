"""What an engine conforms at, in words that a person can repeat: groups of scenarios."""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase


@dataclass(frozen=True)
class Level:
    """A group of scenarios with one name, as in "conforms at together, late join".

    ``scenarios`` are names, or globs of names.
    """

    name: str
    scenarios: tuple[str, ...]

    def has(self, scenario: str) -> bool:
        """Whether the scenario belongs to it."""
        return any(fnmatchcase(scenario, glob) for glob in self.scenarios)


LEVELS: tuple[Level, ...] = (
    Level("alone", ("repeat", "rechunked", "batch_of_one", "served_alone", "served_endpoints")),
    Level("together", ("identical", "equal_length", "ragged", "wide", "served_together")),
    Level("prefill in pieces", ("chunked", "window")),
    Level(
        "late join",
        ("staggered", "early_finish", "slot_reuse", "served_joins", "served_ends", "served_slots"),
    ),
    Level("cancel", ("cancelled", "traffic_leaves", "served_leaves")),
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
            "stale_state",
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
