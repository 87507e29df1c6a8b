"""mamba: a right-padded row keeps the convolution and SSM state of its padding.

mlx_lm/models/mamba.py:130 stores the last columns of the padded batch as the convolution state, and
the loop at line 135 runs on over the padding: no mask is made for it. Mended by taking the columns
that end at each row's own length (``cache.lengths``), and by leaving the SSM state as it is where
``cache.make_mask`` is false.
"""

import sys
from importlib.metadata import version

try:
    import mlx.core as mx
    from mlx.utils import tree_map
    from mlx_lm.generate import BatchGenerator
    from mlx_lm.models import mamba
except ImportError as error:
    print(f"cannot run: {error}")
    sys.exit(2)

CONFIG = {
    "model_type": "mamba", "vocab_size": 64, "hidden_size": 32, "intermediate_size": 64,
    "state_size": 8, "num_hidden_layers": 2, "conv_kernel": 4, "use_bias": False,
    "use_conv_bias": True, "time_step_rank": 2,
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
    model = mamba.Model(mamba.ModelArgs.from_dict(CONFIG))
    model.update(tree_map(lambda w: w + 0.3 * mx.random.normal(w.shape), model.parameters()))
    (alone,) = first_logprobs(model, SHORT)
    padded, _ = first_logprobs(model, SHORT, LONG)
    worst = mx.abs(padded - alone).max().item()
    print(f"mlx-lm {version('mlx-lm')}, mamba: a prompt of {len(SHORT)} tokens alone,")
    print(f"and in a batch beside one of {len(LONG)}, to whose length it is padded. First token:")
    print(f"expected {alone.argmax().item()}, as alone; got {padded.argmax().item()}")
    print(f"logprobs: expected difference 0, got {worst:.3g} nats")
    return 1 if worst > 1e-2 else 0


if __name__ == "__main__":
    sys.exit(main())
