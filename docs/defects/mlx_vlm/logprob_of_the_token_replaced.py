"""A thinking budget's forced token is reported with the logprob of the token that it replaces.

GenerationBatch.next (mlx_vlm/generate/ar.py:1485) puts the forced token in the place of the sampled
one, and leaves the logprob that was taken of the sampled one. The token's own is in the same
response's top_logprobs. Fixed by taking the forced tokens' logprobs from the same distribution.
"""

import sys
from importlib.metadata import version
from types import SimpleNamespace

import mlx.core as mx
from mlx_vlm.generate.ar import BatchGenerator
from mlx_vlm.utils import ThinkingBudgetCriteria

VOCAB, END = 8, 0


class Model:
    """Predicts the next number after each token."""

    layers = (None,)

    def __call__(self, tokens, cache, **_):
        fed = mx.zeros((len(tokens), 1, tokens.shape[1], 8))
        cache[0].update_and_fetch(fed, fed)
        best = (tokens[..., None] + 1) % VOCAB
        return mx.where(mx.arange(VOCAB) == best, 4.0, 0.0)


class NeverStops:
    """A tokenizer's stop tokens: there are none."""

    def add_eos_token_ids(self, _):
        pass

    def __call__(self, _):
        return False


class Tokenizer:
    """One token opens thinking, another ends it, without a line break before."""

    stopping_criteria = NeverStops()

    def encode(self, text, add_special_tokens):
        return {"<think>": [VOCAB], "</think>": [END]}.get(text, [])


def main() -> int:
    print(f"mlx-vlm {version('mlx-vlm')}: one row, thinking ends after two tokens")
    tokenizer = Tokenizer()
    budget = ThinkingBudgetCriteria(tokenizer, 1, "</think>", "<think>", True, True)
    generator = BatchGenerator(Model(), SimpleNamespace(tokenizer=tokenizer), top_logprobs_k=VOCAB)
    prompt = {"inputs_embeds": mx.zeros((1, 2, 8))}
    generator.insert([[1, 2]], [4], [prompt], thinking_budget_criteria=[budget])
    wrong = 0
    for _ in range(6):
        for response in generator.next()[1]:
            own = dict(response.top_logprobs)[response.token]
            reported = response.token_logprob
            print(f"token {response.token}: reported {reported:.3f}, in its distribution {own:.3f}")
            wrong += abs(reported - own) > 1e-3
    print("expected: both are equal")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
