"""Rules for layers with a state: state spaces, linear attention, convolutions."""

from __future__ import annotations

import math

from conformance.tools.new_family.draft import Tower
from conformance.tools.new_family.widths import HEAD, HIDDEN

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
