"""A small model in mlx-lm's style, for tests of what a user brings."""

from dataclasses import dataclass
from typing import Any

import mlx.core as mx
import mlx.nn as nn
from mlx_lm.models.base import BaseModelArgs, create_attention_mask


@dataclass
class ModelArgs(BaseModelArgs):
    model_type: str
    hidden_size: int
    num_hidden_layers: int
    intermediate_size: int
    num_attention_heads: int
    num_key_value_heads: int
    rms_norm_eps: float
    vocab_size: int
    rope_theta: float = 10000.0


class Attention(nn.Module):
    def __init__(self, args):
        super().__init__()
        self.heads, self.kv_heads = args.num_attention_heads, args.num_key_value_heads
        self.size = args.hidden_size // self.heads
        self.q_proj = nn.Linear(args.hidden_size, args.hidden_size, bias=False)
        self.k_proj = nn.Linear(args.hidden_size, self.kv_heads * self.size, bias=False)
        self.v_proj = nn.Linear(args.hidden_size, self.kv_heads * self.size, bias=False)
        self.o_proj = nn.Linear(args.hidden_size, args.hidden_size, bias=False)
        self.rope = nn.RoPE(self.size, base=args.rope_theta)

    def __call__(self, x, mask, cache):
        rows, length, _ = x.shape
        q = self.q_proj(x).reshape(rows, length, self.heads, -1).transpose(0, 2, 1, 3)
        k = self.k_proj(x).reshape(rows, length, self.kv_heads, -1).transpose(0, 2, 1, 3)
        v = self.v_proj(x).reshape(rows, length, self.kv_heads, -1).transpose(0, 2, 1, 3)
        offset = cache.offset if cache is not None else 0
        q, k = self.rope(q, offset=offset), self.rope(k, offset=offset)
        if cache is not None:
            k, v = cache.update_and_fetch(k, v)

        out = mx.fast.scaled_dot_product_attention(q, k, v, scale=self.size**-0.5, mask=mask)
        return self.o_proj(out.transpose(0, 2, 1, 3).reshape(rows, length, -1))


class Block(nn.Module):
    def __init__(self, args):
        super().__init__()
        self.self_attn = Attention(args)
        self.up_proj = nn.Linear(args.hidden_size, args.intermediate_size, bias=False)
        self.down_proj = nn.Linear(args.intermediate_size, args.hidden_size, bias=False)
        self.input_layernorm = nn.RMSNorm(args.hidden_size, eps=args.rms_norm_eps)
        self.post_attention_layernorm = nn.RMSNorm(args.hidden_size, eps=args.rms_norm_eps)

    def __call__(self, x, mask, cache):
        x = x + self.self_attn(self.input_layernorm(x), mask, cache)
        return x + self.down_proj(nn.silu(self.up_proj(self.post_attention_layernorm(x))))


class Model(nn.Module):
    def __init__(self, args: ModelArgs):
        super().__init__()
        self.args = args
        self.model_type = args.model_type
        self.embed_tokens = nn.Embedding(args.vocab_size, args.hidden_size)
        self.layers = [Block(args) for _ in range(args.num_hidden_layers)]
        self.norm = nn.RMSNorm(args.hidden_size, eps=args.rms_norm_eps)
        self.lm_head = nn.Linear(args.hidden_size, args.vocab_size, bias=False)

    def __call__(self, inputs: mx.array, cache: Any = None):
        x = self.embed_tokens(inputs)
        cache = cache or [None] * len(self.layers)
        mask = create_attention_mask(x, cache[0])
        for layer, c in zip(self.layers, cache, strict=True):
            x = layer(x, mask, c)
        return self.lm_head(self.norm(x))
