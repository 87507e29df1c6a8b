"""nemotron_h: its MTP drafter attends to the padding of shorter prompts.

AutoregressiveMTPDraftModel.prefill_from_target_hidden
(mlx_vlm/speculative/drafters/mtp_base.py:122) puts a whole padded batch into plain KVCaches
(nemotron_h_mtp.py:48), which mask no padding, and keeps it there for all drafts. The server hits
it with two prompts of unlike lengths at once: tokens stay right, drafts of the shorter one are
wasted. Mended by caches that know the padding.
"""

import sys
from importlib.metadata import version

import mlx.core as mx
from mlx import nn
from mlx_vlm.speculative.drafters.nemotron_h_mtp import Model, ModelConfig

HIDDEN, VOCAB, PADDING = 64, 32, 3
TEXT = {
    "model_type": "nemotron_h",
    "vocab_size": VOCAB, "hidden_size": HIDDEN, "intermediate_size": 96, "num_hidden_layers": 1,
    "hybrid_override_pattern": "*", "max_position_embeddings": 512, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 16, "attention_bias": False, "mamba_num_heads": 4,
    "mamba_head_dim": 16, "mamba_proj_bias": False, "ssm_state_size": 16, "conv_kernel": 4,
    "n_groups": 2, "mlp_bias": False, "layer_norm_epsilon": 1e-05, "use_bias": False,
    "use_conv_bias": True, "moe_intermediate_size": 32, "moe_shared_expert_intermediate_size": 32,
    "moe_latent_size": 32, "n_routed_experts": 8, "n_shared_experts": 1, "num_experts_per_tok": 2,
    "n_group": 2, "topk_group": 1, "norm_topk_prob": True, "routed_scaling_factor": 2.5,
    "num_nextn_predict_layers": 1, "mtp_hybrid_override_pattern": "*E",
}  # fmt: skip


def drafted(drafter: Model, tokens: mx.array, hidden: mx.array) -> mx.array:
    """The hidden state from which the last row's first draft is made."""
    drafter._cache = drafter.make_cache()
    bonus = mx.array([1] * len(tokens))
    drafter.prefill_from_target_hidden(tokens, hidden, bonus, None, greedy=True)
    return drafter._seed_hidden[-1]


def main() -> int:
    mx.random.seed(0)
    config = {"model_type": "nemotron_h_mtp", "block_size": 3, "text_config": TEXT}
    drafter = Model(ModelConfig.from_dict(config))
    drafter._input_embed = nn.Embedding(VOCAB, HIDDEN)
    drafter._lm_head_fn = nn.Linear(HIDDEN, VOCAB)
    tokens = mx.random.randint(0, VOCAB, (2, 6))
    hidden = mx.random.normal((2, 6, HIDDEN))
    alone = drafted(drafter, tokens[1:, PADDING:], hidden[1:, PADDING:])
    batched = drafted(drafter, tokens, hidden)
    apart = mx.abs(batched - alone).max().item()
    print(f"mlx-vlm {version('mlx-vlm')}: a prompt of 3 tokens beside one of 6")
    print(f"the state of its first draft: {apart:.2g} from the one alone")
    print("expected: rounding")
    return 0 if apart < 1e-4 else 1


if __name__ == "__main__":
    sys.exit(main())
