"""mlx-lm's server cannot serve a prompt that equals a sequence whose cache it keeps.

mlx_lm/models/cache.py:1656 answers such a prompt with the whole cache and no tokens to compute.
mlx_lm/server.py:848 then takes all segments of the prompt away, and insert_segments
(mlx_lm/generate.py:1698) raises; nobody catches it, so the server's generation thread ends. The
plainest way there: an answer ended at max_tokens, and prompt and answer are sent to be gone on
with. Fixed by leaving the last token to compute: trimmed off the cache, or, where the cache
cannot be trimmed, with the next shorter cache that is kept. Upstream pull requests 1581 and 1887.
"""

import sys
from importlib.metadata import version

import mlx.core as mx
from mlx_lm.generate import BatchGenerator
from mlx_lm.models import llama
from mlx_lm.models.cache import LRUPromptCache

CONFIG = {
    "model_type": "llama",
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "intermediate_size": 64,
    "num_attention_heads": 4,
    "rms_norm_eps": 1e-5,
    "vocab_size": 64,
}
PROMPT = [5, 9, 33, 7, 21]


def ask(generator, kept, prompt):
    """What server.py does between lines 843 and 868, and with a finished response (1003)."""
    cache, rest = kept.fetch_nearest_cache("model", prompt)
    segments = [prompt[len(prompt) - len(rest) :]] if rest else []
    print(f"a prompt of {len(prompt)} tokens: {len(rest)} of them to compute")
    generator.insert_segments([segments], max_tokens=[3], caches=[cache])
    answer, ended = [], False
    while not ended:
        for response in generator.next()[1]:
            answer.append(response.token)
            if response.finish_reason is not None:
                kept.insert_cache("model", prompt + answer, response.prompt_cache)
                ended = True
    return answer


def main() -> int:
    mx.random.seed(0)
    model = llama.Model(llama.ModelArgs.from_dict(CONFIG))
    generator, kept = BatchGenerator(model), LRUPromptCache()
    print(f"mlx-lm {version('mlx-lm')}")
    answer = ask(generator, kept, PROMPT)
    try:
        more = ask(generator, kept, PROMPT + answer)
    except ValueError as error:
        print(f"expected: the answer goes on; got: ValueError: {error}")
        return 1
    print(f"the answer goes on: {more}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
