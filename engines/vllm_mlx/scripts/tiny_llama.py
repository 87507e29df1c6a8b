"""A tiny llama of mlx-lm with random weights, vllm-mlx's engine on it, and what it answers."""

from dataclasses import dataclass

import mlx.core as mx
import numpy as np
from mlx.utils import tree_flatten, tree_unflatten
from mlx_lm.models import llama
from vllm_mlx.engine_core import EngineConfig, EngineCore
from vllm_mlx.request import Request, SamplingParams
from vllm_mlx.scheduler import SchedulerConfig

VOCABULARY = 96


@dataclass
class Tokenizer:
    """A token's text is its number; none ends a request."""

    eos_token_id = None
    clean_up_tokenization_spaces = False

    def encode(self, text):
        return [int(word) for word in text.split()]

    def decode(self, tokens):
        return "".join(f"{token} " for token in tokens)


def weighted(model):
    """The model with weights of N(0, 2 / fan-in), the same on every machine."""
    rng = np.random.default_rng(0)

    def drawn(shape):
        if len(shape) == 1:
            return mx.ones(shape)
        return mx.array(rng.normal(0, (2 / shape[-1]) ** 0.5, shape).astype(np.float32))

    flat = [(name, drawn(value.shape)) for name, value in tree_flatten(model.parameters())]
    model.update(tree_unflatten(flat))
    return model


def tiny_llama():
    args = llama.ModelArgs(
        model_type="llama",
        hidden_size=64,
        num_hidden_layers=3,
        intermediate_size=96,
        num_attention_heads=4,
        num_key_value_heads=2,
        rms_norm_eps=1e-5,
        vocab_size=VOCABULARY,
        tie_word_embeddings=False,
    )
    return weighted(llama.Model(args))


def tokens(count, seed):
    """A prompt."""
    return np.random.default_rng(seed).integers(1, VOCABULARY, count).tolist()


def engine(model, **config):
    """vllm-mlx's engine; without arguments at its default settings."""
    return EngineCore(model, Tokenizer(), EngineConfig(scheduler_config=SchedulerConfig(**config)))


def greedy(count=6, **more):
    return SamplingParams(max_tokens=count, temperature=0.0, top_p=1.0, **more)


def answer(core, prompt, params=None):
    """The tokens of one request that is all the engine has to do."""
    (output,) = core.generate_batch_sync([prompt], params or greedy())
    return list(output.output_token_ids)


def fresh(model, prompt, params=None, **config):
    """The same of an engine that has seen nothing before."""
    core = engine(model, **config)
    try:
        return answer(core, prompt, params)
    finally:
        core.close()


def verdict(what, right, got):
    """Print both; exit 1 where they differ, as this is what the script is to show."""
    print(f"{what}\n  right: {right}\n  got:   {got}")
    raise SystemExit(f"DEFECT: {what}" if right != got else 0)


__all__ = [
    "Request",
    "answer",
    "engine",
    "fresh",
    "greedy",
    "mx",
    "tiny_llama",
    "tokens",
    "verdict",
    "weighted",
]
