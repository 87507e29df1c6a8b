"""vllm-mlx 0.6.0: once the paged cache is full, nothing is kept any more, and nothing is given up.

scheduler.py:3005 ("Do NOT call release_cache") leaves the blocks of every request that ever
ended in use, and paged_cache.py:1059 evicts only blocks that nobody uses. So the cache stays
what the first 64,000 tokens made it: 1,000 blocks of 64 by default, here 32 so that it does not
take minutes.
"""

from tiny_llama import Request, engine, greedy, tiny_llama, tokens, verdict
from vllm_mlx.mlx_streams import bind_generation_streams

model = tiny_llama()
core = engine(model, use_paged_cache=True, max_cache_blocks=32)
bind_generation_streams()


def cached(name, prompt):
    """How many tokens of the prompt the cache had."""
    request = Request(name, prompt, greedy(1))
    core.scheduler.add_request(request)
    found = request.cached_tokens
    while core.scheduler.has_requests():
        core.scheduler.step()
    return found


for number in range(3):  # of 14 blocks each
    cached(f"filling {number}", tokens(900, seed=number))
last = tokens(900, seed=1000)
before = cached("new", last)
again = cached("again", last + tokens(3, seed=7))
verdict(
    "a prompt that comes a second time, once all blocks were used", (0, 14 * 64), (before, again)
)
