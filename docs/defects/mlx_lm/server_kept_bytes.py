"""mlx_lm.server does not hold --prompt-cache-bytes where it serves requests one by one.

The limit is looked at only where a request joins a batch (server.py:887). _serve_single adds the
caches of its request to the store (server.py:1145) and evicts none: prompts with a seed, with a
draft model, or of a model whose caches do not merge are kept up to --prompt-cache-size, however
large they are. With a call of trim_to after insert_cache the limit is held. _serve_single runs here
on a tiny model; tokens, which do not matter, are made without a tokenizer.
"""

import sys
from argparse import Namespace
from importlib.metadata import version
from queue import Queue
from types import MethodType

import mlx.core as mx
from mlx_lm import server
from mlx_lm.generate import StopSequences
from mlx_lm.models import cache, llama

CONFIG = {
    "model_type": "llama",
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "intermediate_size": 64,
    "num_attention_heads": 4,
    "rms_norm_eps": 1e-5,
    "vocab_size": 64,
}
LIMIT = 200_000
PROMPTS = [[number, 9, 33, 7] for number in range(10, 16)]
NUMBERS = ("top_p", "min_p", "temperature", "xtc_probability", "xtc_threshold")
PENALTIES = ("repetition", "presence", "frequency")


def generated(model, prompt, prompt_cache, **_):
    """One token, and a cache with the prompt."""
    model(mx.array([prompt]), cache=prompt_cache)
    yield Namespace(text="", token=1, logprobs=mx.zeros(64), finish_reason="length")


def main() -> int:
    server.stream_generate = generated
    model = llama.Model(llama.ModelArgs.from_dict(CONFIG))
    words = Namespace(has_tool_calling=False, has_thinking=False, tool_parser=None)
    words.eos_token_ids, words.encode = (), lambda _: [1]
    options = Namespace(prompt_cache_bytes=LIMIT, prefill_step_size=64, quantized_kv_start=0)
    options.kv_bits, options.kv_group_size = None, 64
    provider = Namespace(model=model, tokenizer=words, draft_model=None, model_key=("m",) * 3)
    single = Namespace(model_provider=provider, cli_args=options, _is_distributed=False)
    provider.cli_args = options
    single.prompt_cache = cache.LRUPromptCache()
    single._log_cache_stats = lambda: None
    single._make_state_machine = lambda *_: (StopSequences([]), None)
    serve = MethodType(server.ResponseGenerator._serve_single, single)
    sampling = Namespace(**dict.fromkeys(NUMBERS, 0.0), top_k=0)
    logits = Namespace(logit_bias=None)
    for name in PENALTIES:
        setattr(logits, f"{name}_penalty", 0.0)
        setattr(logits, f"{name}_context_size", 20)
    args = Namespace(sampling=sampling, logits=logits, seed=1, max_tokens=1, stop_words=[])
    args.num_draft_tokens = args.top_logprobs = 0
    for prompt in PROMPTS:
        single._tokenize = lambda *_, prompt=prompt: (prompt[:], [], [], "normal", None)
        answer = Queue()
        serve((answer, Namespace(messages=[]), args), mx.default_stream(mx.default_device()))
        for found in list(answer.queue):
            if isinstance(found, Exception):
                raise found
    kept = single.prompt_cache.nbytes
    print(
        f"mlx-lm {version('mlx-lm')}: expected at most {LIMIT} bytes of {len(PROMPTS)} prompts, "
        f"kept {kept}"
    )
    return int(kept > LIMIT)


if __name__ == "__main__":
    sys.exit(main())
