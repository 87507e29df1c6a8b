"""vllm-mlx 0.6.0: with a kept prefix a repetition penalty forgets the tokens of that prefix.

scheduler.py:2473 inserts the rest of the prompt and its cache, but not the tokens that the cache
stands for (``all_tokens`` of mlx-lm's insert), so penalties count none of them. Default
settings.
"""

from tiny_llama import answer, engine, fresh, greedy, tiny_llama, tokens, verdict

model = tiny_llama()
core = engine(model)
first = tokens(200, seed=1)
follow_up = first + answer(core, first) + tokens(2, seed=5)
penalised = greedy(8, repetition_penalty=3.0)
verdict(
    "the second turn of a chat, with a repetition penalty",
    fresh(model, follow_up, penalised),
    answer(core, follow_up, penalised),
)
