"""vllm-mlx 0.6.0: the paged prefix cache finds a block by its own tokens, not by what is before it.

paged_cache.py:873 hashes the block's tokens alone (the chained hash at line 40 is not called),
so prefix_cache.py:590 and paged_cache.py:964 take a block of one prompt for that of another
whose earlier tokens differ. Default settings, but for use_paged_cache=True: blocks of 64 tokens.
"""

from tiny_llama import answer, engine, fresh, tiny_llama, tokens, verdict

model = tiny_llama()
first, second, end = tokens(64, seed=1), tokens(64, seed=2), tokens(5, seed=3)
core = engine(model, use_paged_cache=True)
answer(core, first + second + end)
swapped = second + first + end
verdict(
    "a prompt whose 64-token blocks were kept in another order",
    fresh(model, swapped),
    answer(core, swapped),
)
