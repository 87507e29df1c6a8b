"""bailing_moe_linear: padding is written into the linear-attention state of a right-padded row.

mlx_lm/models/bailing_moe_linear.py:313 calls recurrent_gla without the mask that the layer was
given (line 278; made at line 496), so the recurrence of a short row runs on over its padding.
Mended by leaving the state as it is where the mask is false.
"""

import sys
from importlib.metadata import version

try:
    import mlx.core as mx
    from mlx.utils import tree_map
    from mlx_lm.generate import BatchGenerator
    from mlx_lm.models import bailing_moe_linear
except ImportError as error:
    print(f"cannot run: {error}")
    sys.exit(2)

CONFIG = {
    "model_type": "bailing_moe_linear", "vocab_size": 64, "hidden_size": 32,
    "intermediate_size": 48, "max_position_embeddings": 256, "moe_intermediate_size": 16,
    "num_experts": 2, "num_shared_experts": 0, "norm_topk_prob": True, "num_attention_heads": 4,
    "num_experts_per_tok": 1, "num_hidden_layers": 2, "num_key_value_heads": 2,
    "rms_norm_eps": 1e-05, "rope_theta": 1000.0, "first_k_dense_replace": 2,
    "layer_group_size": 2, "group_norm_size": 2,
}  # fmt: skip
SHORT, LONG = [3, 14, 15, 9, 26], list(range(5, 28))


def first_logprobs(model, *prompts):
    """Decode the prompts in one batch; return the logprobs of the first token of each."""
    generator = BatchGenerator(model)
    uids = generator.insert(list(prompts), max_tokens=[1] * len(prompts))
    found = {}
    while len(found) < len(uids):
        found |= {r.uid: r.logprobs for r in generator.next()[1]}
    generator.close()
    return [found[uid] for uid in uids]


def main() -> int:
    mx.random.seed(0)
    model = bailing_moe_linear.Model(bailing_moe_linear.ModelArgs.from_dict(CONFIG))
    model.update(tree_map(lambda w: w + 0.3 * mx.random.normal(w.shape), model.parameters()))
    (alone,) = first_logprobs(model, SHORT)
    padded, _ = first_logprobs(model, SHORT, LONG)
    worst = mx.abs(padded - alone).max().item()
    print(f"mlx-lm {version('mlx-lm')}, bailing_moe_linear: a prompt of {len(SHORT)} tokens alone,")
    print(f"and in a batch beside one of {len(LONG)}, to whose length it is padded. First token:")
    print(f"expected {alone.argmax().item()}, as alone; got {padded.argmax().item()}")
    print(f"logprobs: expected difference 0, got {worst:.3g} nats")
    return 1 if worst > 1e-2 else 0


if __name__ == "__main__":
    sys.exit(main())
