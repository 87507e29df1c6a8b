"""Rules for layers: the fewest that include every kind, in their order, and their states.

The config's values for each layer (lists, patterns, lists of indices) form one row per layer;
different rows are different kinds. Runs of equal rows are cut to two. Of the rest, the fewest are
kept such that each kind occurs before the last layer, whose cache nothing reads.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from typing import Any

from conformance.tools.new_family.draft import Place, Tower
from conformance.tools.new_family.widths import HEAD, HIDDEN

LAYERS = 4
PERIOD = 3
MOST_LAYERS = 12
RUN = 2

COUNTS = ("num_hidden_layers", "n_layer", "n_layers", "num_layers", "num_transformer_layers")
# Each with its offset.
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
    """Shrink the number of layers, and every field that has a value for each layer."""
    original = tower.number(*COUNTS)
    if original is None:
        return
    rows = _rows(tower, original)
    chosen = choose(rows, least=min(original, max(_by_formula(tower), tower.layers_least)))
    count = len(chosen)
    tower.sizes["layers"] = count
    tower.put(COUNTS, count, "as few as hold every kind of layer, each before the last")
    _cut_lists(tower, original, chosen)
    _cut_indices(tower, chosen)
    _shorten_periods(tower)
    for place, key, value in tower.each(*LEADING):
        if isinstance(value, int):
            small = min(value, RUN) if value < original else count
            tower.draft.put(place, key, small, "the first layers are of another kind, as before")
    for place, key, value in tower.each("max_window_layers"):
        small = count if value >= original else min(value, RUN)
        tower.draft.put(place, key, small, "all layers or some, as before")
    for place, key, value in tower.each("num_kv_shared_layers", "num_kv_reuse_layers"):
        small = max(1, round(count * value / original)) if value else 0
        tower.draft.put(place, key, small, "the same share of the layers has no cache")


def choose(rows: Sequence[str], *, least: int) -> list[int]:
    """The original indices of the layers to keep: the fewest that include every kind.

    Args:
        rows: the kind of each layer.
        least: the smallest number of layers allowed.
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
        few = firsts | {min(max(firsts) + 1, len(rows) - 1)}
        others = [index for index in short if index not in few]
        kept = sorted([*few, *others[: max(least - len(few), 0)]])
    missing = sorted(rows.index(kind) for kind in set(rows) - {rows[index] for index in kept})
    return sorted({*kept, *missing})


def _without_long_runs(rows: Sequence[str]) -> list[int]:
    kept: list[int] = []
    for index, row in enumerate(rows):
        if len(kept) < RUN or any(rows[before] != row for before in kept[-RUN:]):
            kept.append(index)
    return kept


def _rows(tower: Tower, count: int) -> list[str]:
    """All fields of each layer, as one text."""
    sources = [[json.dumps(item) for item in value] for _, _, value in _per_layer(tower, count)]
    for _, key, value in tower.each(*INDICES, *FROM_ONE):
        if isinstance(value, list):
            listed = {index - (key in FROM_ONE) for index in value}
            sources.append([str(index in listed) for index in range(count)])
    return ["|".join(parts) for parts in zip(*sources, strict=True)] if sources else [""] * count


def _per_layer(tower: Tower, count: int) -> Iterator[tuple[Place, str, Any]]:
    """Lists and texts with an element for each layer."""
    for place in tower.places:
        for key, value in place.original.items():
            pattern = isinstance(value, str) and key.endswith("_pattern")
            listed = isinstance(value, list) and key not in INDICES
            if (pattern or listed) and len(value) == count > 1:
                yield place, key, value


def _by_formula(tower: Tower) -> int:
    """The number of layers in two periods of every formula."""
    rounds = [2 * _period(value) for _, _, value in tower.each(*PERIODS)]
    rounds += [2 * len(value) for _, _, value in tower.each(*CYCLES)]
    return max([LAYERS, *rounds])


def _period(value: Any) -> int:
    """The period of a repeated pattern, at most three: two layers of one kind, one of another."""
    if isinstance(value, str):
        return len(value) if len(value) <= 4 else 1
    return min(value, PERIOD) if isinstance(value, int) else 1


def _cut_lists(tower: Tower, original: int, chosen: list[int]) -> None:
    why = "the kinds of the layers that are kept"
    for place, key, value in list(_per_layer(tower, original)):
        now = place.now[key] if len(place.now[key]) == original else value
        kept = [now[index] for index in chosen]
        tower.draft.put(place, key, "".join(kept) if isinstance(value, str) else kept, why)


def _cut_indices(tower: Tower, chosen: list[int]) -> None:
    for place, key, value in tower.each(*INDICES, *FROM_ONE):
        if isinstance(value, list):
            first = int(key in FROM_ONE)
            kept = [new + first for new, old in enumerate(chosen) if old + first in value]
            tower.draft.put(place, key, kept, "the same layers, where they are now")


def _shorten_periods(tower: Tower) -> None:
    """Shorten periods above three to three; the form of the formulas stays."""
    for place, key, value in tower.each(*PERIODS):
        if isinstance(value, str) or not isinstance(value, int):
            continue
        small = _period(value)
        tower.draft.put(place, key, small, "the same pattern with shorter runs")
        offset = PERIODS[key]
        if offset in place.original:
            kept = min(place.original[offset], small - 1)
            tower.draft.put(place, offset, kept, "within the shorter period")


STATE = 16
STATES = ("state_size", "ssm_state_size", "mamba_d_state")
GROUPS = ("n_groups", "mamba_n_groups")
SSM_HEADS = ("mamba_n_heads", "mamba_num_heads")
SSM_HEAD_SIZES = ("mamba_d_head", "mamba_head_dim")
RANKS = ("time_step_rank", "mamba_dt_rank")
CHUNKS = ("chunk_size", "mamba_chunk_size")


def state_space(tower: Tower) -> None:
    """Shrink the state of Mamba layers; heads x head size still equals the inner width."""
    if tower.number(*STATES) is None:
        return
    tower.cap(STATES, STATE, "a tiny state")
    for place, key, value in tower.each(*GROUPS):
        tower.draft.put(place, key, min(value, 2), "one group or several, as before")
    expand = tower.get("expand", "mamba_expand") or 2
    inner = int(expand * tower.sizes["hidden"])
    original = tower.number(*HIDDEN) or 0
    pure = tower.number("num_attention_heads") is None
    own = pure and tower.number("num_heads") is not None
    counts = (*SSM_HEADS, "num_heads") if own else SSM_HEADS
    tower.put(counts, inner // HEAD, "as many as fill the inner width")
    tower.put((*SSM_HEAD_SIZES, "head_dim") if own else SSM_HEAD_SIZES, HEAD, "a tiny head")
    tower.put(("mamba_d_ssm",), inner, "heads x size of a head")
    if pure:
        tower.put(("intermediate_size",), inner, f"the inner width, {expand} x the width")
    for place, key, value in tower.each(*RANKS):
        if isinstance(value, int):
            follows = value == math.ceil(original / 16)
            small = math.ceil(tower.sizes["hidden"] / 16) if follows else min(value, 4)
            tower.draft.put(place, key, small, "a tiny rank")
    tower.cap(CHUNKS, 8, "several pieces to a prompt")


def linear_attention(tower: Tower) -> None:
    """Use few heads for delta rules and similar, with no fewer values than keys, as before."""
    keys, values = tower.number("linear_num_key_heads"), tower.number("linear_num_value_heads")
    if keys and values:
        small = min(keys, 2)
        tower.put(("linear_num_key_heads",), small, "few heads")
        many = small if values <= keys else 2 * small
        tower.put(("linear_num_value_heads",), many, "as many as keys, or more, as before")
    tower.cap(("linear_key_head_dim",), HEAD, "a tiny head")
    tower.cap(("linear_value_head_dim",), HEAD, "a tiny head")
    for place in [p for p in tower.places if p.path.endswith("linear_attn_config")]:
        for key, small in (("num_heads", 4), ("head_dim", HEAD)):
            if key in place.original:
                tower.draft.put(place, key, small, "few, tiny heads")
