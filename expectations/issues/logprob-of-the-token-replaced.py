import sys
from types import SimpleNamespace

import mlx.core as mx
from mlx_vlm.generate.ar import BatchGenerator
from mlx_vlm.utils import ThinkingBudgetCriteria

WORDS = {"<think>": [8], "</think>": [0]}


class Model:  # predicts the next number after each token of a vocabulary of eight
    layers = (None,)

    def __call__(self, tokens, cache, **_):
        fed = mx.zeros((len(tokens), 1, tokens.shape[1], 8))
        cache[0].update_and_fetch(fed, fed)
        return mx.where(mx.arange(8) == (tokens[..., None] + 1) % 8, 4.0, 0.0)


class NeverStops:
    add_eos_token_ids = __call__ = lambda self, _: False


tokenizer = SimpleNamespace(
    stopping_criteria=NeverStops(),
    encode=lambda text, add_special_tokens: WORDS.get(text, []),
)
budget = ThinkingBudgetCriteria(tokenizer, 1, "</think>", "<think>", True, True)
generator = BatchGenerator(Model(), SimpleNamespace(tokenizer=tokenizer), top_logprobs_k=8)
prompt = {"inputs_embeds": mx.zeros((1, 2, 8))}
generator.insert([[1, 2]], [4], [prompt], thinking_budget_criteria=[budget])
wrong = False
for response in (one for _ in range(6) for one in generator.next()[1]):
    top, reported = dict(response.top_logprobs)[response.token], response.token_logprob
    print(f"token {response.token}: token_logprob {reported:.3f}, in its top_logprobs {top:.3f}")
    wrong |= abs(reported - top) > 1e-3
sys.exit(wrong)
