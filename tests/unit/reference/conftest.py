"""A tiny model in mlx with a layer of each kind, and its single stream."""

import copy

import mlx.core as mx
import numpy as np
import pytest
from mlx_lm.models.base import (
    create_attention_mask,
    create_ssm_mask,
    scaled_dot_product_attention,
)
from mlx_lm.models.cache import (
    ArraysCache,
    CacheList,
    ChunkedKVCache,
    KVCache,
    RotatingKVCache,
    make_prompt_cache,
)

VOCAB, DIM, WINDOW = 24, 32, 4


class Tiny:
    """Layers by name: ``keys``, ``window``, ``state``, ``list`` (keys and a state), ``chunked``."""

    def __init__(self, *layers, seed=0):
        rng = np.random.default_rng(seed)
        self.layers = layers
        self.calls = []
        self.embedding = self.weight(rng, VOCAB, DIM)
        self.head = self.weight(rng, DIM, VOCAB)
        self.weights = [[self.weight(rng, DIM, DIM) for _ in range(3)] for _ in layers]

    @staticmethod
    def weight(rng, *shape):
        return mx.array(rng.normal(0, 1.2 / np.sqrt(DIM), shape).astype(np.float32))

    def make_cache(self):
        kinds = {
            "keys": KVCache,
            "window": lambda: RotatingKVCache(max_size=WINDOW),
            "state": lambda: ArraysCache(1),
            "list": lambda: CacheList(KVCache(), ArraysCache(1)),
            "chunked": lambda: ChunkedKVCache(WINDOW),
        }
        return [kinds[layer]() for layer in self.layers]

    def __call__(self, inputs, cache):
        self.calls.append(inputs.shape)
        h = self.embedding[inputs] * 8
        for layer, weights, own in zip(self.layers, self.weights, cache, strict=True):
            if layer in ("keys", "window", "chunked"):
                h = h + self.attend(h, weights, own)
            elif layer == "state":
                h = h + self.recur(h, weights, own)
            else:
                h = h + self.attend(h, weights, own[0])
                h = h + self.recur(h, weights, own[1])
        return h @ self.head

    def attend(self, h, weights, cache):
        if isinstance(cache, ChunkedKVCache):
            cache.maybe_trim_front()
            keys = mx.arange(cache.start_position, cache.offset + h.shape[1])[None]
            queries = mx.arange(cache.offset, cache.offset + h.shape[1])[:, None]
            mask = (keys // WINDOW == queries // WINDOW) & (keys <= queries)
        else:
            mask = create_attention_mask(h, cache)
        q, k, v = ((h @ w)[:, None] for w in weights)
        options = {"traditional": False, "base": 100.0, "scale": 1.0, "offset": cache.offset}
        q, k = (mx.fast.rope(x, DIM, **options) for x in (q, k))
        k, v = cache.update_and_fetch(k, v)
        return scaled_dot_product_attention(q, k, v, cache=cache, scale=1.0, mask=mask)[:, 0]

    def recur(self, h, weights, cache):
        mask = create_ssm_mask(h, cache)
        state = mx.zeros((h.shape[0], DIM)) if cache[0] is None else cache[0]
        states = []
        for t in range(h.shape[1]):
            moved = 0.7 * state + mx.tanh(h[:, t] @ weights[0])
            state = moved if mask is None else mx.where(mask[:, t, None], moved, state)
            states.append(state)
        cache[0] = state
        cache.advance(h.shape[1])
        return mx.stack(states, axis=1) @ weights[1]


KINDS = (("keys",), ("keys", "window"), ("state",), ("list", "state"), ("chunked", "chunked"))


@pytest.fixture(params=KINDS, ids="-".join)
def model(request):
    return Tiny(*request.param)


@pytest.fixture
def tiny():
    return Tiny


@pytest.fixture
def solo():
    """Tokens and logprobs of the greedy single stream, one token a call from the first one on."""

    def decode(model, prompt, steps, caches=None):
        caches = copy.deepcopy(caches) if caches else make_prompt_cache(model)
        tokens, rows, todo = [], [], list(prompt)
        while len(tokens) < steps:
            for token in todo:
                logits = model(mx.array([[token]]), cache=caches)[0, -1]
            rows.append(np.array(logits - mx.logsumexp(logits)))
            tokens.append(int(rows[-1].argmax()))
            todo = tokens[-1:]
        return tokens, np.stack(rows)

    return decode
