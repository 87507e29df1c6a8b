"""Keys and values that later layers of AFM reuse."""

from __future__ import annotations

import threading
from typing import Any

import mlx.core as mx
from mlx_vlm.models.base import dequantize_kv_state
from mlx_vlm.models.cache import KVCache

from conformance.core.faults.declaration import Hits
from conformance.core.faults.patching import Patch, Right, replace, together, wrap
from conformance.core.mends import mend
from conformance.plugins.mlx_vlm.library_parts import part


@mend("afm7-state-of-batch-cache", single_stream=True)
def later_layers_reuse_what_the_last_fetched(hits: Hits) -> Patch:
    """Later layers get the keys and values that the last cache gave, and each row's own offset."""
    module = part("models.afm7.language")
    call = threading.local()

    def model(
        right: Right, self: Any, inputs: Any, inputs_embeds: Any = None, cache: Any = None
    ) -> Any:
        call.offset = None
        if cache is None or isinstance(cache[-1], KVCache):
            return right(self, inputs, inputs_embeds, cache)
        hits.hit()
        hidden = self.embedding(inputs) if inputs_embeds is None else inputs_embeds
        mask = module.create_attention_mask(hidden, cache[0])
        # A copy, because the cache counts in place.
        last, offset = cache[-1], cache[-1].offset + 0
        fetched: list[Any] = []
        update = last.update_and_fetch

        def fetch(*new: Any) -> Any:
            fetched[:] = update(*new)
            return tuple(fetched)

        with replace(last, "update_and_fetch", fetch):
            for layer, of_layer in zip(self.layers, cache, strict=True):
                hidden = layer(hidden, mask, cache=of_layer)
        call.offset = offset
        reused = dequantize_kv_state(last, *fetched)
        for layer in self.kv_reuse_layers:
            hidden = layer(hidden, *reused, mask)
        return self.output_norm(hidden)

    def attention(right: Right, self: Any, x: mx.array, keys: Any, *args: Any) -> Any:
        if call.offset is None:
            return right(self, x, keys, *args)
        values, mask = args
        queries = self.q_proj(x).reshape(*x.shape[:2], self.n_heads, -1).swapaxes(1, 2)
        queries = self.q_norm(self.rope(queries, offset=call.offset))
        found = module.scaled_dot_product_attention(
            queries, keys, values, cache=None, scale=self.scale, mask=mask
        )
        return self.out_proj(found.swapaxes(1, 2).reshape(x.shape))

    return together(
        wrap(module.AFMModel, "__call__", model),
        wrap(module.KVReuseAttention, "__call__", attention),
    )
