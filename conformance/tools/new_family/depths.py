"""Rules for depth: as few layers as hold every kind, in the order that they had.

What a config says layer by layer (lists, patterns, lists of indices) makes one row for each layer;
unlike rows are unlike kinds. Runs of equal rows are cut to two, and the least of the rest is kept
in which each kind occurs before the last layer: nothing reads what a last layer remembers.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from conformance.tools.new_family.draft import Place, Tower

LAYERS = 4
PERIOD = 3
MOST_LAYERS = 12
RUN = 2

COUNTS = ("num_hidden_layers", "n_layer", "n_layers", "num_layers", "num_transformer_layers")
# Each with the offset that belongs to it.
PERIODS = {
    "sliding_window_pattern": "",
    "layer_switch": "",
    "full_attention_interval": "",
    "attn_layer_period": "attn_layer_offset",
    "expert_layer_period": "expert_layer_offset",
    "decoder_sparse_step": "",
    "interleave_moe_layer_step": "",
    "no_rope_layer_interval": "",
    "moe_layer_freq": "",
    "layer_group_size": "",
    "global_attn_every_n_layers": "",
}
INDICES = (
    "mlp_only_layers",
    "attn_layer_indices",
    "full_attn_idxs",
    "cross_attention_layers",
    "moe_layers",
)
FROM_ONE = ("kda_layers", "full_attn_layers")
CYCLES = ("block_types",)
LEADING = ("first_k_dense_replace", "num_dense_layers", "moe_layer_start_index")


def depth(tower: Tower) -> None:
    """The number of layers, and everything that is said layer by layer."""
    said = tower.number(*COUNTS)
    if said is None:
        return
    rows = _rows(tower, said)
    chosen = choose(rows, least=min(said, max(_by_formula(tower), tower.layers_least)))
    count = len(chosen)
    tower.sizes["layers"] = count
    tower.put(COUNTS, count, "as few as hold every kind of layer, each before the last")
    _cut_lists(tower, said, chosen)
    _cut_indices(tower, chosen)
    _shorten_periods(tower)
    for place, key, value in tower.each(*LEADING):
        if isinstance(value, int):
            small = min(value, RUN) if value < said else count
            tower.draft.put(place, key, small, "the first layers are of another kind, as before")
    for place, key, value in tower.each("max_window_layers"):
        small = count if value >= said else min(value, RUN)
        tower.draft.put(place, key, small, "all layers or some, as before")
    for place, key, value in tower.each("num_kv_shared_layers", "num_kv_reuse_layers"):
        small = max(1, round(count * value / said)) if value else 0
        tower.draft.put(place, key, small, "the same share of the layers has no cache")


def choose(rows: Sequence[str], *, least: int) -> list[int]:
    """The layers to keep, by their old indices: the least that hold every kind.

    Args:
        rows: for each layer its kind.
        least: how many there must be.
    """
    short = _without_long_runs(rows)
    kinds = set(rows[:-1]) or set(rows)
    for count in range(1, len(short) + 1):
        kept = short[:count]
        if count >= least and kinds <= {rows[index] for index in kept[:-1]}:
            break
    else:
        kept = short if len(short) >= least else list(range(least))
    if len(kept) > max(MOST_LAYERS, least):
        firsts = {rows.index(kind) for kind in set(rows)}
        kept = sorted(firsts | {min(max(firsts) + 1, len(rows) - 1)})
    missing = sorted(rows.index(kind) for kind in set(rows) - {rows[index] for index in kept})
    return sorted({*kept, *missing})


def _without_long_runs(rows: Sequence[str]) -> list[int]:
    kept: list[int] = []
    for index, row in enumerate(rows):
        if len(kept) < RUN or any(rows[before] != row for before in kept[-RUN:]):
            kept.append(index)
    return kept


def _rows(tower: Tower, count: int) -> list[str]:
    """For each layer all that is said of it, as one text."""
    sources = [[json.dumps(item) for item in value] for _, _, value in _per_layer(tower, count)]
    for _, key, value in tower.each(*INDICES, *FROM_ONE):
        if isinstance(value, list):
            listed = {index - (key in FROM_ONE) for index in value}
            sources.append([str(index in listed) for index in range(count)])
    return ["|".join(parts) for parts in zip(*sources, strict=True)] if sources else [""] * count


def _per_layer(tower: Tower, count: int) -> Iterator[tuple[Place, str, Any]]:
    """Lists and texts with an element for each layer."""
    for place in tower.places:
        for key, value in place.said.items():
            pattern = isinstance(value, str) and key.endswith("_pattern")
            listed = isinstance(value, list) and key not in INDICES
            if (pattern or listed) and len(value) == count > 1:
                yield place, key, value


def _by_formula(tower: Tower) -> int:
    """Layers that two rounds of every formula take."""
    rounds = [2 * _period(value) for _, _, value in tower.each(*PERIODS)]
    rounds += [2 * len(value) for _, _, value in tower.each(*CYCLES)]
    return max([LAYERS, *rounds])


def _period(value: Any) -> int:
    """Of a pattern that goes round; longer ones are cut to three: two of a kind, one of another."""
    if isinstance(value, str):
        return len(value) if len(value) <= 4 else 1
    return min(value, PERIOD) if isinstance(value, int) else 1


def _cut_lists(tower: Tower, said: int, chosen: list[int]) -> None:
    why = "the kinds of the layers that are kept"
    for place, key, value in list(_per_layer(tower, said)):
        now = place.now[key] if len(place.now[key]) == said else value
        kept = [now[index] for index in chosen]
        tower.draft.put(place, key, "".join(kept) if isinstance(value, str) else kept, why)


def _cut_indices(tower: Tower, chosen: list[int]) -> None:
    for place, key, value in tower.each(*INDICES, *FROM_ONE):
        if isinstance(value, list):
            first = int(key in FROM_ONE)
            kept = [new + first for new, old in enumerate(chosen) if old + first in value]
            tower.draft.put(place, key, kept, "the same layers, where they are now")


def _shorten_periods(tower: Tower) -> None:
    """Formulas keep their form; a period longer than three becomes three."""
    for place, key, value in tower.each(*PERIODS):
        if isinstance(value, str) or not isinstance(value, int):
            continue
        small = _period(value)
        tower.draft.put(place, key, small, "the same pattern with shorter runs")
        offset = PERIODS[key]
        if offset in place.said:
            kept = min(place.said[offset], small - 1)
            tower.draft.put(place, offset, kept, "within the shorter period")
