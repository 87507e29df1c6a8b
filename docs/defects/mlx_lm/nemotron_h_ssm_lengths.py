"""nemotron_h: a right-padded row loses its SSM state.

mlx_lm/models/nemotron_h.py:211 calls ssm_update without ``lengths``. ssm_attn then takes the decay
of the last, padded column (mlx_lm/models/ssm.py:180), which the mask has made 0, so the prompt
is gone from the state. Mended by passing ``cache.lengths``, as mamba2 and granitemoehybrid do.
"""

import sys
from importlib.metadata import version

try:
    import mlx.core as mx
    from mlx.utils import tree_map
    from mlx_lm.generate import BatchGenerator
    from mlx_lm.models import nemotron_h
except ImportError as error:
    print(f"cannot run: {error}")
    sys.exit(2)

CONFIG = {
    "model_type": "nemotron_h", "vocab_size": 64, "hidden_size": 32, "intermediate_size": 48,
    "max_position_embeddings": 256, "num_attention_heads": 4, "num_key_value_heads": 2,
    "attention_bias": False, "mamba_num_heads": 4, "mamba_head_dim": 8,
    "mamba_proj_bias": False, "ssm_state_size": 8, "conv_kernel": 4, "n_groups": 2,
    "mlp_bias": False, "layer_norm_epsilon": 1e-05, "use_bias": False, "use_conv_bias": True,
    "hybrid_override_pattern": "M*",
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
    model = nemotron_h.Model(nemotron_h.ModelArgs.from_dict(CONFIG))
    model.update(tree_map(lambda w: w + 0.3 * mx.random.normal(w.shape), model.parameters()))
    (alone,) = first_logprobs(model, SHORT)
    padded, _ = first_logprobs(model, SHORT, LONG)
    worst = mx.abs(padded - alone).max().item()
    print(f"mlx-lm {version('mlx-lm')}, nemotron_h: a prompt of {len(SHORT)} tokens alone,")
    print(f"and in a batch beside one of {len(LONG)}, to whose length it is padded. First token:")
    print(f"expected {alone.argmax().item()}, as alone; got {padded.argmax().item()}")
    print(f"logprobs: expected difference 0, got {worst:.3g} nats")
    return 1 if worst > 1e-2 else 0


if __name__ == "__main__":
    sys.exit(main())
