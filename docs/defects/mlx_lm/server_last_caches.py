"""mlx_lm.server holds the caches of its last answer until the next one, however long that takes.

The loop variables of server.py:972, ``r`` and ``gen_responses``, and ``cache`` of server.py:963
live as long as the generation thread, and with them the last response's prompt_cache and that of
the last prompt's first segment, also with --prompt-cache-size 0: at rest a server keeps the memory
of its last request's whole context. With these variables deleted after the loops, none is left.
The server's own loop runs here, on a tiny model; what it asks of a tokenizer is stood in for.
"""

import gc
import os
import sys
import time
from argparse import Namespace
from importlib.metadata import version
from queue import Queue

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
PROMPT = [5, 9, 33, 7, 21]
PLAIN = dict.fromkeys(
    ("repetition_penalty", "presence_penalty", "frequency_penalty", "top_p", "min_p"), 0.0
)


class Words:
    """As much of a tokenizer and its detokenizer as the loop needs."""

    has_tool_calling = has_thinking = False
    tool_parser, eos_token_ids, last_segment = None, (), ""
    detokenizer = property(lambda self: self)

    def encode(self, _):
        return [1]

    def add_token(self, _):
        pass

    def finalize(self):
        pass


class Provider:
    """A model that is loaded."""

    model_key = ("m", None, None)
    cli_args = Namespace(
        prompt_cache_bytes=None, decode_concurrency=4, prompt_concurrency=4, prefill_step_size=64
    )

    def load_default(self):
        self.model = llama.Model(llama.ModelArgs.from_dict(CONFIG))
        mx.eval(self.model.parameters())

    def load(self, *_):
        return self.model, Words()

    def reset(self):
        self.model = None


class Loop(server.ResponseGenerator):
    cli_args = Provider.cli_args

    def _is_batchable(self, _):
        return True

    def _tokenize(self, *_):
        return PROMPT, [list(PROMPT)], ["assistant"], "normal", None

    def _make_state_machine(self, *_):
        return StopSequences([]), None


def held():
    """Bytes of all caches that live."""
    gc.collect()
    kinds = (cache.KVCache, cache.BatchKVCache)
    return sum(found.nbytes for found in gc.get_objects() if isinstance(found, kinds))


def main() -> None:
    loop = Loop(Provider(), cache.LRUPromptCache(max_size=0))
    sampling = Namespace(**PLAIN, temperature=0.0, top_k=0, xtc_probability=0.0, xtc_threshold=0.0)
    logits = Namespace(
        **PLAIN,
        logit_bias=None,
        repetition_context_size=20,
        presence_context_size=20,
        frequency_context_size=20,
    )
    args = Namespace(
        model=Namespace(model="m", adapter=None, draft=None),
        sampling=sampling,
        logits=logits,
        max_tokens=4,
        stop_words=[],
        top_logprobs=0,
    )
    answer = Queue()
    loop.requests.put((answer, Namespace(messages=[]), args))
    found = list(iter(lambda: answer.get(timeout=60), None))
    time.sleep(1.0)  # the loop has looked for another request several times
    kept = held()
    loop.stop_and_join()
    tokens = [r.token for r in found if isinstance(r, server.Response)]
    print(f"mlx-lm {version('mlx-lm')}: {len(tokens)} tokens were answered")
    print(f"expected: no cache is held at rest; got: {kept} bytes of caches")
    sys.stdout.flush()
    os._exit(1 if kept else 0)  # its stream would end after Python's end


if __name__ == "__main__":
    main()
