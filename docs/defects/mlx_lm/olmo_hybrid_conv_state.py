"""olmo_hybrid: a right-padded row keeps the convolution states of its padding.

mlx_lm/models/olmo_hybrid.py:140 stores the last columns of the padded batch as the states of the
three convolutions (queries, keys, values). Mended by taking the columns that end at each row's own
length (``cache.lengths``), as qwen3_next does.
"""

import sys
from importlib.metadata import version

try:
    import mlx.core as mx
    from mlx.utils import tree_map
    from mlx_lm.generate import BatchGenerator
    from mlx_lm.models import olmo_hybrid
except ImportError as error:
    print(f"cannot run: {error}")
    sys.exit(2)

CONFIG = {
    "model_type": "olmo_hybrid", "vocab_size": 64, "hidden_size": 32, "intermediate_size": 48,
    "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
    "rms_norm_eps": 1e-05, "max_position_embeddings": 256, "linear_num_key_heads": 2,
    "linear_num_value_heads": 2, "linear_key_head_dim": 8, "linear_value_head_dim": 8,
    "linear_conv_kernel_dim": 4, "linear_allow_neg_eigval": True, "tie_word_embeddings": False,
    "attention_bias": False, "layer_types": ["linear_attention", "full_attention"],
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
    model = olmo_hybrid.Model(olmo_hybrid.ModelArgs.from_dict(CONFIG))
    model.update(tree_map(lambda w: w + 0.3 * mx.random.normal(w.shape), model.parameters()))
    (alone,) = first_logprobs(model, SHORT)
    padded, _ = first_logprobs(model, SHORT, LONG)
    worst = mx.abs(padded - alone).max().item()
    print(f"mlx-lm {version('mlx-lm')}, olmo_hybrid: a prompt of {len(SHORT)} tokens alone,")
    print(f"and in a batch beside one of {len(LONG)}, to whose length it is padded. First token:")
    print(f"expected {alone.argmax().item()}, as alone; got {padded.argmax().item()}")
    print(f"logprobs: expected difference 0, got {worst:.3g} nats")
    return 1 if worst > 1e-2 else 0


if __name__ == "__main__":
    sys.exit(main())
