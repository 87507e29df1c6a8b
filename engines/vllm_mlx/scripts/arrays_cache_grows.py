"""mlx-lm 0.31.3, which vllm-mlx 0.6.0 asks for: decoding makes a graph that is never computed.

``ArraysCache.advance`` subtracts from its left padding in each step, and nothing evaluates that.
"""

import io

import mlx.core as mx
from mlx_lm.models.cache import ArraysCache
from tiny_llama import verdict


def nodes(array):
    text = io.StringIO()
    mx.export_to_dot(text, array)
    return text.getvalue().count("->")


cache = ArraysCache.merge([ArraysCache(2), ArraysCache(2)])
sizes = []
for _ in range(200):
    cache.advance(1)
    sizes.append(nodes(cache.left_padding))
verdict("edges behind a cache's padding after 1 and 200 steps", sizes[0], sizes[-1])
