"""Rules for mixtures of experts: fewer experts, fewer chosen, the same kind of routing."""

from __future__ import annotations

from conformance.tools.new_family.draft import Tower

COUNTS = (
    "num_experts",
    "n_routed_experts",
    "num_local_experts",
    "moe_num_experts",
    "num_routed_experts",
)
CHOSEN = (
    "num_experts_per_tok",
    "num_experts_per_token",
    "experts_per_token",
    "moe_topk",
    "moe_top_k",
    "moe_k",
    "top_k_experts",
)
GROUPS = ("n_group", "num_expert_group")
SHARED = ("n_shared_experts", "num_shared_experts", "moe_num_shared_experts")
PREDICTION = ("num_nextn_predict_layers", "num_mtp_modules", "mtp_transformer_layers")


def routing(tower: Tower) -> None:
    """Use 4 experts (8 with groups), with at most 2 chosen; if all were chosen, all still are."""
    original = tower.number(*COUNTS)
    if not original or original < 2:
        return
    groups = tower.number(*GROUPS) or 1
    count = min(original, 8 if groups > 1 else 4)
    tower.put(COUNTS, count, "few experts, still a choice")
    for place, key, chosen in tower.each(*CHOSEN):
        if isinstance(chosen, int):
            small = count if chosen >= original else min(chosen, 2)
            tower.draft.put(place, key, small, "fewer than there are, as before")
    if groups > 1:
        few = min(groups, 4)
        tower.put(GROUPS, few, "groups of 2 experts")
        left = tower.number("topk_group") or 1
        tower.put(("topk_group",), few if left >= groups else min(left, 2), "some of the groups")
    tower.cap((*SHARED, "zero_expert_num"), 2, "few experts that are always on")


def prediction(tower: Tower) -> None:
    """Remove layers for multi-token prediction, which take no part in decoding."""
    for key in PREDICTION:
        if tower.number(key):
            tower.put((key,), 0, "layers that predict further tokens take no part in decoding")
