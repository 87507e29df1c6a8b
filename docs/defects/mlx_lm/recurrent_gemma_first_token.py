"""recurrent_gemma: a prompt that joins others has its first token scaled.

mlx_lm/models/recurrent_gemma.py:157 leaves the first token of a sequence unscaled, but takes the
absence of a state for the sign of it. A new row that joins rows with a state gets zeros for a state
(``ArraysCache.extend``, ``merge``), and is then scaled. Fixed by going by each row's own position.
"""

import sys
from importlib.metadata import version

try:
    import mlx.core as mx
    from mlx.utils import tree_map
    from mlx_lm.generate import BatchGenerator
    from mlx_lm.models import recurrent_gemma
except ImportError as error:
    print(f"cannot run: {error}")
    sys.exit(2)

CONFIG = {
    "model_type": "recurrent_gemma", "vocab_size": 64, "hidden_size": 32,
    "intermediate_size": 64, "num_hidden_layers": 2, "block_types": ["recurrent", "attention"],
    "num_attention_heads": 4, "num_key_value_heads": 1, "attention_bias": False,
    "conv1d_width": 4, "attention_window_size": 32, "logits_soft_cap": 30.0,
    "rms_norm_eps": 1e-06, "rope_theta": 1000.0,
}  # fmt: skip
LONG, NEW = list(range(5, 26)), [3, 14, 15, 9, 26]


def first_logprobs(model, *prompts):
    """Prefill in pieces of 4, each prompt one piece after the one before; first token of each."""
    generator = BatchGenerator(model, prefill_step_size=4)
    uids, found = [], {}
    while len(found) < len(prompts):
        if len(uids) < len(prompts):
            uids += generator.insert([prompts[len(uids)]], max_tokens=[1])
        found |= {r.uid: r.logprobs for r in generator.next()[1]}
    generator.close()
    return [found[uid] for uid in uids]


def main() -> int:
    mx.random.seed(0)
    model = recurrent_gemma.Model(recurrent_gemma.ModelArgs.from_dict(CONFIG))
    model.update(tree_map(lambda w: w + 0.3 * mx.random.normal(w.shape), model.parameters()))
    (alone,) = first_logprobs(model, NEW)
    _, joined = first_logprobs(model, LONG, NEW)
    worst = mx.abs(joined - alone).max().item()
    print(f"mlx-lm {version('mlx-lm')}, recurrent_gemma: a prompt alone, and joining another after")
    print("the first piece of that one's prefill (no padding in any piece). First token:")
    print(f"expected {alone.argmax().item()}, as alone; got {joined.argmax().item()}")
    print(f"logprobs: expected difference 0, got {worst:.3g} nats")
    return 1 if worst > 1e-2 else 0


if __name__ == "__main__":
    sys.exit(main())
