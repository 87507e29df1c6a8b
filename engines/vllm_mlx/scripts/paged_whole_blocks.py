"""vllm-mlx 0.6.0: a prompt that is kept to its end gets its last token twice.

scheduler.py:2370 drops a cache that covers the whole prompt only for the hits "exact" and
"supersequence" of the memory-aware cache. The paged cache's hits are called "hit" (line 2136),
so line 2385 feeds the last token again, after a cache that has it. Any prompt of whole blocks
that comes a second time. Default settings, but for use_paged_cache=True.
"""

from tiny_llama import answer, engine, fresh, tiny_llama, tokens, verdict

model = tiny_llama()
prompt = tokens(128, seed=1)
core = engine(model, use_paged_cache=True)
answer(core, prompt)
verdict("a prompt of two whole blocks, asked again", fresh(model, prompt), answer(core, prompt))
