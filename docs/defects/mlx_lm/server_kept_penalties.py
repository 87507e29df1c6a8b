"""mlx_lm.server forgets a kept prompt in the penalties of a request that it serves by itself.

_serve_single takes the begin of a prompt from the prompt cache and hands the rest alone to
stream_generate (server.py:1101), which takes it for all tokens so far: the penalties of a request
with a seed, or beside a draft model, leave out the tokens that were kept, so the same request is
answered otherwise the second time. A batch counts them. _serve_single runs here on a tiny model;
tokens are made without a tokenizer.
"""

import sys
from argparse import Namespace
from importlib.metadata import version
from queue import Queue
from types import MethodType

import mlx.core as mx
from mlx_lm import server
from mlx_lm.generate import StopSequences, generate_step
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
PROMPT = list(range(3, 23))
NUMBERS = ("top_p", "min_p", "temperature", "xtc_probability", "xtc_threshold")
PENALTIES = ("repetition", "presence", "frequency")


def generated(model, prompt, max_tokens, logits_processors, prompt_cache, **_):
    """The library's own decoding, without texts."""
    steps = generate_step(
        mx.array(prompt),
        model,
        max_tokens=max_tokens,
        logits_processors=logits_processors,
        prompt_cache=prompt_cache,
    )
    for token, logprobs in steps:
        yield Namespace(text="", token=token, logprobs=logprobs, finish_reason=None)


def main() -> int:
    server.stream_generate = generated
    mx.random.seed(0)
    model = llama.Model(llama.ModelArgs.from_dict(CONFIG))
    words = Namespace(has_tool_calling=False, has_thinking=False, tool_parser=None)
    words.eos_token_ids, words.encode = (), lambda _: [1]
    options = Namespace(prompt_cache_bytes=None, prefill_step_size=64, quantized_kv_start=0)
    options.kv_bits, options.kv_group_size = None, 64
    provider = Namespace(model=model, tokenizer=words, draft_model=None, model_key=("m",) * 3)
    single = Namespace(model_provider=provider, cli_args=options, _is_distributed=False)
    provider.cli_args = options
    single.prompt_cache = cache.LRUPromptCache()
    single._log_cache_stats = lambda: None
    single._make_state_machine = lambda *_: (StopSequences([]), None)
    single._tokenize = lambda *_: (PROMPT[:], [], [], "normal", None)
    serve = MethodType(server.ResponseGenerator._serve_single, single)
    sampling = Namespace(**dict.fromkeys(NUMBERS, 0.0), top_k=0)
    logits = Namespace(logit_bias=None)
    for name in PENALTIES:
        setattr(logits, f"{name}_penalty", 0.0)
        setattr(logits, f"{name}_context_size", 100)
    logits.presence_penalty = 1000.0  # no token of the prompt may come again
    args = Namespace(sampling=sampling, logits=logits, seed=1, max_tokens=8, stop_words=[])
    args.num_draft_tokens = args.top_logprobs = 0
    answers = []
    for _ in range(2):
        answer = Queue()
        serve((answer, Namespace(messages=[]), args), mx.default_stream(mx.default_device()))
        found = list(answer.queue)
        for one in found:
            if isinstance(one, Exception):
                raise one
        answers.append([one.token for one in found if isinstance(one, server.Response)])
    first, second = answers
    print(f"mlx-lm {version('mlx-lm')}: expected {first} twice, got {second} the second time")
    return int(first != second)


if __name__ == "__main__":
    sys.exit(main())
