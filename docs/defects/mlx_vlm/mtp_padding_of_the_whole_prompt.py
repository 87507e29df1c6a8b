"""glm5_next: its MTP drafter takes the only token of a shorter prompt for padding.

_mtp_rounds_batch (mlx_vlm/speculative/mtp.py:915) passes the padding of whole prompts to the
drafter's caches, but its hidden states are of the last token alone
(mlx_vlm/generate/ar.py:2317): the column of a shorter row is
masked, and its position is that many places too early. The server hits it with two prompts of
unlike lengths at once: tokens stay right, drafts of the shorter one are wasted. Mended by the
padding of the columns that there are.
"""

import contextlib
import sys
from importlib.metadata import version

import mlx.core as mx
from mlx import nn
from mlx_vlm.models.cache import BatchKVCache
from mlx_vlm.speculative import mtp
from mlx_vlm.speculative.drafters.glm5_next_mtp import Model, ModelConfig

HIDDEN, VOCAB, SHORT, LONG = 64, 64, 5, 9
TEXT = {
    "model_type": "glm5_next_text", "hidden_size": HIDDEN, "num_hidden_layers": 1,
    "intermediate_size": 96, "num_attention_heads": 4, "num_key_value_heads": 4,
    "vocab_size": VOCAB, "max_position_embeddings": 256, "moe_intermediate_size": 32,
    "num_nextn_predict_layers": 3, "n_shared_experts": 1, "n_routed_experts": 4,
    "num_experts_per_tok": 2, "routed_scaling_factor": 2.5, "n_group": 1, "topk_group": 1,
    "norm_topk_prob": True, "q_lora_rank": 24, "kv_lora_rank": 16, "qk_rope_head_dim": 0,
    "qk_nope_head_dim": 16, "v_head_dim": 16, "mla_use_nope": True, "rms_norm_eps": 1e-05,
    "first_k_dense_replace": 1, "scoring_func": "sigmoid", "topk_method": "noaux_tc",
    "tie_word_embeddings": False, "attention_bias": False, "index_topk": 8, "index_head_dim": 16,
    "index_n_heads": 16, "index_kpool": 2, "index_kpool_always_select_tail": True,
    "index_kpool_compress": True, "indexer_rope_interleave": True, "indexer_types": ["full"],
    "layer_types": ["deepseek_sparse_attention"], "hc_mult": 2, "hc_eps": 1e-06,
    "hc_sinkhorn_iters": 20, "swiglu_limit": 10.0,
    "linear_attn_config": {
        "head_dim": 16, "num_heads": 4, "short_conv_kernel_size": 4, "gate_lower_bound": -5.0
    },
}  # fmt: skip


class Target(nn.Module):
    """As much of a model as a drafter needs."""

    def __init__(self) -> None:
        super().__init__()
        self.embed_tokens = nn.Embedding(VOCAB, HIDDEN)
        self.lm_head = nn.Linear(HIDDEN, VOCAB, bias=False)


class BegunError(Exception):
    """The round has begun; what comes after is not needed."""


def seed(drafter: Model, target: Target, hidden: mx.array, lengths: list[int]) -> mx.array:
    """The first row's hidden state from which drafts go on, as the first round begins."""
    cache = BatchKVCache([max(lengths) - length for length in lengths])
    keys = mx.zeros((len(lengths), 1, max(lengths), 8))
    cache.update_and_fetch(keys, keys)

    def begun(*_: object, **__: object) -> None:
        raise BegunError

    drafter.draft_block = begun
    rounds = mtp._mtp_rounds_batch(
        target, drafter, [cache], hidden, {},
        prompt_tokens=mx.full((len(lengths), 1), 7), first_bonus=mx.array([3] * len(lengths)),
        max_tokens=9, sampler=lambda x: mx.argmax(x, axis=-1), greedy_sampling=True,
    )  # fmt: skip
    with contextlib.suppress(BegunError):
        next(rounds)
    return drafter._seed_hidden[0]


def main() -> int:
    mx.random.seed(0)
    config = {"model_type": "glm5_next_mtp", "block_size": 4, "text_config": TEXT}
    drafter, target = Model(ModelConfig.from_dict(config)), Target()
    # Of the last token of each prompt, as after a prefill.
    hidden = mx.random.normal((2, 1, HIDDEN))
    alone = seed(drafter, target, hidden[:1], [SHORT])
    batched = seed(drafter, target, hidden, [SHORT, LONG])
    apart = mx.abs(batched - alone).max().item()
    print(f"mlx-vlm {version('mlx-vlm')}: a prompt of {SHORT} tokens beside one of {LONG}")
    print(f"the state of its first draft: {apart:.2g} from the one alone")
    print("expected: rounding")
    return 0 if apart < 1e-4 else 1


if __name__ == "__main__":
    sys.exit(main())
