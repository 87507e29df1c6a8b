"""Rules for widths (hidden size, heads, feed-forward, low ranks) and for the vocabulary."""

from __future__ import annotations

import math
from typing import Any

from conformance.tools.new_family.draft import Place, Tower

WIDTH = 64
HEADS = 4
HEAD = 16
WIDE_HEAD = 32
FEED = 96
EXPERT = 32
RANK = 16

HIDDEN = ("hidden_size", "n_embd", "d_model", "model_dim", "hidden_dim", "dim")
HEAD_COUNTS = ("num_attention_heads", "n_head", "n_heads", "num_heads")
KV_COUNTS = (
    "num_key_value_heads",
    "num_kv_heads",
    "n_head_kv",
    "multi_query_group_num",
    "num_attention_groups",
    "num_global_key_value_heads",
)
HEAD_SIZES = ("head_dim", "kv_channels", "attention_head_dim", "global_head_dim", "qk_head_dim")
FEEDS = (
    "intermediate_size",
    "n_inner",
    "d_ff",
    "ffn_dim",
    "ffn_hidden_size",
    "intermediate_size_mlp",
    "dense_intermediate_size",
    "block_ff_dim",
    "shared_intermediate_size",
)
EXPERT_FEEDS = (
    "moe_intermediate_size",
    "expert_ffn_hidden_size",
    "shared_expert_intermediate_size",
    "moe_shared_expert_intermediate_size",
    "share_expert_dim",
    "moe_latent_size",
)


def hidden(tower: Tower) -> None:
    """Reduce the width of the residual stream, and fields that equal it by definition."""
    original = tower.number(*HIDDEN)
    if original is None:
        return
    tower.sizes["hidden"] = WIDTH
    tower.put(HIDDEN, WIDTH, "the width of a tiny model")
    for key in ("block_dim", "conv_dim", "conv_dim_out", "lru_width"):
        if tower.number(key) == original:
            tower.put((key,), WIDTH, "as wide as the hidden size, as before")
    tower.cap(("hidden_size_per_layer_input",), HEAD, "a tiny width")


def heads(tower: Tower) -> None:
    """Use few heads of the same kind: one each (MHA), in groups (GQA), or one for all (MQA)."""
    original = tower.number(*HEAD_COUNTS)
    if original is None:
        return
    count = few(original)
    tower.sizes["heads"] = count
    tower.put(HEAD_COUNTS, count, f"{count} heads are enough to be mixed up")
    for place, key, kv in tower.each(*KV_COUNTS):
        if not isinstance(kv, int):
            continue
        small = count if kv >= original else 1 if kv == 1 else 2
        kind = (
            "each head its own" if kv >= original else "all share one" if kv == 1 else "in groups"
        )
        tower.draft.put(place, key, small, f"keys and values as before: {kind}")


def few(heads: int) -> int:
    """A number of heads that divides a tiny width: 4, 2 or 1."""
    return HEADS if heads >= HEADS else 2 if heads > 1 else 1


def head_sizes(tower: Tower) -> None:
    """Set the size of a head in the same relation to the width; MLA heads have parts."""
    if not (original_heads := tower.number(*HEAD_COUNTS)) or not tower.number(*HIDDEN):
        return
    original_width = tower.number(*HIDDEN) or 0
    original = tower.number("head_dim", "kv_channels", "attention_head_dim")
    count = tower.sizes["heads"]
    if original is None:
        tower.sizes["head"] = tower.sizes["hidden"] // count
        tower.sizes["original_head"] = original_width // original_heads
    else:
        own = original * original_heads != original_width
        tower.sizes["head"] = WIDE_HEAD if own else tower.sizes["hidden"] // count
        tower.sizes["original_head"] = original
    if tower.number("kv_lora_rank"):
        _latent(tower)
        return
    kind = (
        "heads x size is the width" if tower.sizes["head"] == HEAD else "independent of the width"
    )
    for place, key, value in tower.each(*HEAD_SIZES):
        if isinstance(value, int):
            ratio = value / tower.sizes["original_head"]
            small = max(8, 2 ** round(math.log2(tower.sizes["head"] * ratio)))
            tower.draft.put(place, key, small, f"a tiny head; {kind}, as before")
    _scale_of_queries(tower)


def _latent(tower: Tower) -> None:
    """Shrink multi-head latent attention: a head has a part without and a part with positions."""
    part, value = tower.number("qk_nope_head_dim"), tower.number("v_head_dim")
    rope = tower.number("qk_rope_head_dim") or 0
    nope_small = HEAD if value is None or part is None or value <= part else HEAD // 2
    value_small = HEAD if value is None or part is None or value >= part else HEAD // 2
    small = {"qk_nope_head_dim": nope_small, "qk_rope_head_dim": 8, "v_head_dim": value_small}
    for key, size in small.items():
        tower.cap((key,), size, "a tiny part of a head, in the same order of size")
    tower.cap(("kv_lora_rank",), RANK, "a tiny latent")
    tower.cap(("q_lora_rank",), RANK + 8, "a tiny rank, unlike the latent's")
    parts = {rope: 8, (part or 0) + rope: nope_small + 8, value or 0: value_small}
    for place, key, original in tower.each("head_dim", "qk_head_dim"):
        size = parts.get(original, HEAD)
        tower.draft.put(place, key, size, "follows from the parts of a head")
    tower.sizes["original_head"], tower.sizes["head"] = rope or 1, 8


def _scale_of_queries(tower: Tower) -> None:
    """Adapt scales that depend on the head size."""
    original, small = tower.sizes["original_head"], tower.sizes["head"]
    for place, key, value in tower.each("query_pre_attn_scalar"):
        tower.draft.put(place, key, small, "queries are scaled by the size of a head")
        assert value
    for place, key, value in tower.each("attention_multiplier"):
        if isinstance(value, float) and math.isclose(value * original, 1.0, rel_tol=0.3):
            tower.draft.put(place, key, 1 / small, "1 / size of a head, as before")


def feeds(tower: Tower) -> None:
    """Reduce feed-forward widths; 0 means none, and stays."""
    for place, key, value in tower.each(*FEEDS, *EXPERT_FEEDS):
        small = EXPERT if key in EXPERT_FEEDS else FEED
        tower.draft.put(place, key, _smaller(value, small), "a tiny feed-forward")
    tower.cap(("block_multiple_of",), 8, "a small multiple for a tiny feed-forward")
    tower.cap(("laurel_rank", "altup_rank"), 8, "a tiny rank")
    keys = [
        key for place in tower.places for key in place.original if key.endswith("_low_rank_dim")
    ]
    tower.cap(tuple(keys), 8, "a tiny rank")


def _smaller(value: Any, small: int) -> Any:
    """Reduce a width; different values in a list for all layers stay different."""
    if isinstance(value, list):
        order = sorted({item for item in value if isinstance(item, int) and item})
        return [small + 32 * order.index(item) if item in order else item for item in value]
    return min(value, small) if isinstance(value, int) else value


def indexer(tower: Tower) -> None:
    """Make sparse attention choose fewer tokens than a case has, so that it has a choice."""
    tower.cap(("index_n_heads",), 16, "few; with even fewer, scores of exactly 0 tie")
    tower.cap(("index_head_dim",), HEAD, "a tiny head")
    tower.cap(("index_topk",), 8, "fewer than a prompt has, so that it chooses")


VOCAB = 256
TEXT_END = 240
"""Prompts are drawn from ids below; special tokens have ids above."""
MOST_SPECIAL = 96

_ENDINGS = ("_token_id", "_token_index", "_token_ids")


def vocabulary(tower: Tower) -> None:
    """Use 256 ids, enough for text to vary; per-layer tables that were shorter stay shorter."""
    original = tower.number("vocab_size", "n_vocab")
    if original is None:
        return
    tower.cap(("vocab_size", "n_vocab", "padded_vocab_size"), VOCAB, "enough for text to vary")
    for place, key, value in tower.each("vocab_size_per_layer_input"):
        small = VOCAB if value >= original else TEXT_END
        tower.draft.put(place, key, small, "shorter than the vocabulary, as before, or not")


def is_special(key: str) -> bool:
    """Whether a field holds the id of a special token."""
    return key.endswith(_ENDINGS)


def special_ids(places: list[Place]) -> list[int]:
    """The distinct ids of special tokens in the config, in the order of their names."""
    named = [
        (key, value) for place in places for key, value in place.original.items() if is_special(key)
    ]
    ids: list[int] = []
    for _, value in sorted(named, key=lambda item: item[0]):
        ids += [i for i in (value if isinstance(value, list) else [value]) if _is_id(i)]
    return list(dict.fromkeys(ids))


def text_end(count: int) -> int:
    """One past the last id of text, if ``count`` special tokens come after it."""
    return min(TEXT_END, VOCAB - min(count, MOST_SPECIAL))


def moved(ids: list[int]) -> dict[int, int]:
    """New ids after those of text, in order; ids past the end of the vocabulary share the last."""
    first = text_end(len(ids))
    return {old: min(first + index, VOCAB - 1) for index, old in enumerate(ids)}


def special(tower: Tower, table: dict[int, int]) -> None:
    """Move special tokens after the ids of text; fields that had one id still have one."""
    for place in tower.places:
        for key, value in place.original.items():
            if is_special(key):
                new = _moved(value, table)
                tower.draft.put(place, key, new, "moved into the tiny vocabulary, behind the text")


def _moved(value: Any, table: dict[int, int]) -> Any:
    if isinstance(value, list):
        return [table[item] if _is_id(item) else item for item in value]
    return table.get(value, value) if _is_id(value) else value


def _is_id(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0
