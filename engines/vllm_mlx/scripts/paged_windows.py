"""vllm-mlx 0.6.0: the paged cache restores the whole window's counters for a part of its tokens.

prefix_cache.py:691 cuts the states of a RotatingKVCache that has not wrapped yet into blocks,
and keeps the counters of the whole sequence beside each; line 962 makes a cache of fewer tokens
with those counters. mlx-lm raises when it makes a batch of it, and scheduler.py:3297 ends all
requests that run. Any model with sliding windows whose prompt and answer fit the window. Default
settings, but for use_paged_cache=True.
"""

from mlx_lm.models import gemma3_text
from tiny_llama import answer, engine, fresh, tokens, verdict, weighted

args = gemma3_text.ModelArgs(
    model_type="gemma3_text",
    hidden_size=64,
    num_hidden_layers=6,
    intermediate_size=96,
    num_attention_heads=4,
    num_key_value_heads=2,
    head_dim=16,
    vocab_size=96,
    sliding_window=512,
    sliding_window_pattern=3,
    query_pre_attn_scalar=16,
)
model = weighted(gemma3_text.Model(args))
first = tokens(100, seed=1)
other = first[:70] + tokens(20, seed=2)
core = engine(model, use_paged_cache=True)
answer(core, first)
verdict("a prompt that begins like another, with windows", fresh(model, other), answer(core, other))
