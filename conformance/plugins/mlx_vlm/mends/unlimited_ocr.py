"""Defects of Unlimited OCR, whose generated tokens see the prompt and the last few of their own."""

from __future__ import annotations

import importlib
import threading
from typing import Any

import mlx.core as mx

from conformance.core.faults.declaration import Hits
from conformance.core.faults.patching import Patch, Right, replace, together, wrap
from conformance.core.mends import mend


@mend("unlimited-ocr-window-in-batches")
def rows_of_a_batch_keep_the_window(hits: Hits) -> Patch:
    """In a batch too, generated tokens see the prompt and the window, and nothing in between."""
    language = importlib.import_module("mlx_vlm.models.unlimited_ocr.language")
    generation = importlib.import_module("mlx_vlm.generate.ar").GenerationBatch
    batch_cache = importlib.import_module("mlx_vlm.models.cache").BatchKVCache
    step = threading.local()

    def decode(right: Right, self: Any) -> Any:
        if not isinstance(self._language_model, language.LanguageModel):
            return right(self)
        config = self._language_model.config
        step.window = getattr(config, "sliding_window_size", None) or config.sliding_window
        step.generated = mx.array(self._num_tokens)
        try:
            return right(self)
        finally:
            step.generated = None

    def mask(right: Right, self: Any, h: Any, cache: Any) -> Any:
        found: Any = right(self, h, cache)
        offset: Any = getattr(cache, "offset", None)
        generated = getattr(step, "generated", None)
        if generated is None or not isinstance(offset, mx.array):
            return found
        # The prompt's last token goes through the model alone, and counts as generated.
        prompt = (offset - generated - 1)[:, None]
        columns = mx.arange(found.shape[-1]) - cache.left_padding[:, None]
        seen = (columns < prompt) | (columns > offset[:, None] - step.window)
        hits.hit_if(not bool(seen.all()))
        return found & seen[:, None, None]

    def merged(_: Any, rows: list[Any]) -> Any:
        return batch_cache.merge([_in_order(row) for row in rows])

    def _in_order(ring: Any) -> Any:
        """The ring's tokens, each at its position; what it has dropped is empty, and masked."""
        cache = language.KVCache()
        prompt, held = ring.prefill_length, ring.state[0].shape[2]
        (cache.keys, cache.values), cache.offset = ring.state, ring.offset
        if held < ring.offset:
            turn = prompt + (mx.arange(ring.window_size) + ring._ring_pos) % ring.window_size
            gap = [(0, 0), (0, 0), (0, ring.offset - held), (0, 0)]
            cache.keys, cache.values = (
                mx.concatenate([mx.pad(part[..., :prompt, :], gap), part[..., turn, :]], axis=2)
                for part in ring.state
            )
        return cache

    return together(
        wrap(generation, "_step", decode),
        wrap(language.DeepseekV2RingSlidingModel, "_make_attention_mask", mask),
        replace(language.RingSlidingKVCache, "merge", classmethod(merged)),
    )
