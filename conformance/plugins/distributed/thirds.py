"""Families whose heads, widths and layers divide by three, for groups of three processes.

Tiny families have four heads, two of them for keys, and about two layers: enough for two processes.
"""

from __future__ import annotations

from typing import Any

import msgspec

from conformance.core.family import Family
from conformance.plugins.distributed.ways import PIPELINE

_NAME = "{}-{}-thirds"  # configs differ by way, and results are kept by the family's name
# The sizes that `shard` divides by the number of processes: each becomes half as large again.
_DIVIDED = frozenset(
    {
        "num_attention_heads",
        "num_key_value_heads",
        "num_attention_groups",
        "num_heads",
        "linear_num_key_heads",
        "linear_num_value_heads",
        "sparse_num_index_heads",
        "o_groups",
        "moe_intermediate_size",
        "shared_expert_intermediate_size",
        "shared_intermediate_size",
        "share_expert_dim",
        "expert_ffn_hidden_size",
    }
)
# The experts' width has a different name in these models.
_MORE = {"minimax": {"intermediate_size"}, "minimax_m3_vl": {"intermediate_size"}}
# One head of keys, of which each process gets a copy.
_FIELDS: dict[str, dict[str, Any]] = {"qwen3_5_moe": {"num_key_value_heads": 1}}
_LAYERS = {"bailing_hybrid": 9, "qwen2": 3}


def in_thirds(family: Family, how: str) -> Family:
    """The family for a group of three processes; unchanged if it is divisible as it is."""
    if how == PIPELINE:
        layers = _LAYERS.get(family.module)
        config = family.config | ({"num_hidden_layers": layers} if layers else {})
    else:
        divided = _DIVIDED | _MORE.get(family.module, set())
        config = _widened(family.config, divided, _FIELDS.get(family.module, {}))
    if config == family.config:
        return family
    return msgspec.structs.replace(family, name=_NAME.format(family.name, how), config=config)


def _widened(config: dict[str, Any], divided: frozenset[str], fields: dict[str, Any]) -> Any:
    found = {
        key: _widened(value, divided, fields)
        if isinstance(value, dict)
        else value * 3 // 2
        if key in divided and isinstance(value, int)
        else value
        for key, value in config.items()
    }
    if "num_attention_heads" in config and not config.keys() & {"head_dim", "v_head_dim"}:
        found["hidden_size"] = config["hidden_size"] * 3 // 2
    return found | {key: value for key, value in fields.items() if key in config}
