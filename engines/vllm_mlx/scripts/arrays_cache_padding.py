"""mlx-lm 0.31.3, which vllm-mlx 0.6.0 asks for: padding enters the states of recurrent models.

mlx_lm/models/cache.py:709 gives merged empty caches a left padding of zeros, and make_mask looks
at that before it looks at the lengths, so what pads shorter prompts at their end enters the
state.
"""

from mlx_lm.models import mamba2
from tiny_llama import engine, fresh, greedy, tokens, verdict, weighted

args = mamba2.ModelArgs(
    model_type="mamba2",
    num_heads=8,
    head_dim=16,
    vocab_size=96,
    hidden_size=64,
    intermediate_size=128,
    state_size=16,
    num_hidden_layers=3,
    layer_norm_epsilon=1e-5,
    conv_kernel=4,
    n_groups=1,
    use_bias=False,
    use_conv_bias=True,
    tie_word_embeddings=False,
    time_step_limit=(0.001, 100.0),
    time_step_rank="auto",
)
model = weighted(mamba2.Model(args))
prompts = [tokens(23, seed=1), tokens(5, seed=2)]
outputs = engine(model).generate_batch_sync(prompts, greedy())
right = [fresh(model, prompt) for prompt in prompts]
verdict("prompts of 23 and 5 tokens together", right, [list(o.output_token_ids) for o in outputs])
