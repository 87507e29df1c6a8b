"""longcat_flash_sparse's indexer adds the offsets of a batch's rows to the columns of its queries.

mlx_vlm/models/longcat_flash_sparse/language.py:171 adds ``offset``, one number for each row, to
one number for each query. Unless either is one, that raises; with one query the rows become
queries, and attention raises; with one row it goes through, but the array has by then been
increased in place by update_and_fetch (line 147), so that the last tokens, which are to be kept
always, are sought behind the end. Mended by positions of each row, taken before the update.
"""

import sys
from importlib.metadata import version

import mlx.core as mx
from mlx.utils import tree_map
from mlx_vlm.generate.ar import _make_cache
from mlx_vlm.models.longcat_flash_sparse import Model, ModelConfig

CONFIG = {
    **{"model_type": "longcat_flash_sparse", "hidden_size": 32, "ffn_hidden_size": 32},
    **{"expert_ffn_hidden_size": 16, "num_layers": 1, "num_hidden_layers": 1, "vocab_size": 64},
    **{"num_attention_heads": 2, "max_position_embeddings": 64, "attention_method": "LSA"},
    **{"q_lora_rank": 16, "kv_lora_rank": 16, "qk_rope_head_dim": 8, "qk_nope_head_dim": 8},
    **{"v_head_dim": 8, "mla_scale_q_lora": True, "mla_scale_kv_lora": True, "moe_topk": 1},
    **{"n_routed_experts": 2, "zero_expert_num": 1, "zero_expert_type": "identity"},
    **{"routed_scaling_factor": 1.0, "norm_topk_prob": False, "router_bias": False},
    **{"rms_norm_eps": 1e-5, "rope_theta": 1000.0, "attention_bias": False, "cli_factor": 2},
    **{"index_n_heads": 2, "index_head_dim": 16, "index_topk": 4, "index_init_tokens": 1},
    **{"index_local_tokens": 2, "index_k_norm_type": "rms", "indexer_rope_interleave": True},
    **{"oe_vocab_size_ratio": 2, "oe_neighbor_num": 3, "oe_split_num": 2},
}
PROMPT = [7, 21, 40, 2, 60, 11, 38, 5, 9, 17]


def main() -> int:
    mx.random.seed(0)
    model = Model(ModelConfig.from_dict(CONFIG)).language_model
    model.update(tree_map(lambda w: w + 0.3 * mx.random.normal(w.shape), model.parameters()))
    alone = model(mx.array([PROMPT]), cache=model.make_cache()).logits
    print(f"mlx-vlm {version('mlx-vlm')}, longcat_flash_sparse: equal prompts in a batch cache")
    failed = False
    for rows in (1, 2):
        cache = _make_cache(model, [0] * rows)
        try:
            got = model(mx.array([PROMPT] * rows), cache=cache).logits
            apart = mx.abs(got - alone).max().item()
        except ValueError as error:
            print(f"{rows} rows: expected 0 from alone, got ValueError: {error}")
            failed = True
        else:
            print(f"{rows} rows: expected 0 from alone, got {apart:.3g}")
            failed = failed or apart > 1e-3
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
