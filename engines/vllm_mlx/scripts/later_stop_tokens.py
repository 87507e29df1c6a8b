"""vllm-mlx 0.6.0: stop_token_ids of a request count only if the engine makes a generator for it.

scheduler.py:1529 gives the generator the stop tokens of the request that it is made for; later
ones with the same temperature use it as it is, with the first one's stop tokens. Default
settings.
"""

from tiny_llama import answer, engine, fresh, greedy, tiny_llama, tokens, verdict

model = tiny_llama()
prompt = tokens(20, seed=2)
stop = fresh(model, prompt)[2]
stopping = greedy(6, stop_token_ids=[stop])
core = engine(model)
answer(core, tokens(10, seed=1))
verdict(
    "stop_token_ids of the second request",
    fresh(model, prompt, stopping),
    answer(core, prompt, stopping),
)
