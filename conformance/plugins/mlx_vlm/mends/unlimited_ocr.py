"""Defects of Unlimited OCR, whose generated tokens see the prompt and the last few of their own."""

from __future__ import annotations

import threading
from typing import Any

import mlx.core as mx

from conformance.core.faults.declaration import Hits
from conformance.core.faults.patching import Patch, Right, replace, together, wrap
from conformance.core.mends import mend
from conformance.plugins.mlx_vlm import compat
from conformance.plugins.mlx_vlm.library_parts import part


@mend("unlimited-ocr-window-in-batches")
def rows_of_a_batch_keep_the_window(hits: Hits) -> Patch:
    """In a batch too, generated tokens see the prompt and the window, and nothing in between."""
    language = part("models.unlimited_ocr.language")
    deepseek = part("models.deepseekocr.language")
    generation = part("generate.ar").GenerationBatch
    batch_cache = part("models.cache").BatchKVCache
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

    def layer(right: Right, self: Any, x: mx.array, mask: Any = None, cache: Any = None) -> Any:
        # A quantized layer has no window in the single stream either.
        if getattr(step, "generated", None) is not None and type(cache) is batch_cache:
            mask = seen(cache)
        return right(self, x, mask, cache)

    def seen(cache: Any) -> mx.array:
        """Which keys each row's new token sees, ``[rows, 1, 1, columns]``."""
        offset = cache.offset[:, None]
        # The prompt's last token goes through the model alone, and counts as generated.
        prompt = offset - step.generated[:, None] - 1
        columns = mx.arange(cache._idx + 1) - cache.left_padding[:, None]
        near = (columns < prompt) | (columns > offset - step.window)
        hits.hit_if(not bool(near.all()))
        shown: mx.array = (near & (columns >= 0))[:, None, None]
        return shown

    def merged(_: Any, rows: list[Any]) -> Any:
        return batch_cache.merge([in_order(row) for row in rows])

    def in_order(ring: Any) -> Any:
        """The ring's tokens, each at its position; what it has dropped is empty, and masked."""
        if ring.keys is None or not isinstance(ring, language.RingSlidingKVCache):
            return ring  # nothing is held, or all of a kept prefix
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
        wrap(deepseek.DeepseekV2DecoderLayer, "__call__", layer),
        replace(language.RingSlidingKVCache, "merge", classmethod(merged)),
    )


@mend("unlimited-ocr-ring-begins-in-prompt", single_stream=True)
def the_ring_begins_behind_the_prompt(hits: Hits) -> Patch:
    """A piece of a prompt belongs to what is kept whole, also if it is a single token."""
    ring = part("models.unlimited_ocr.language").RingSlidingKVCache
    plain = part("models.cache").KVCache
    batch = part("generate.ar").PromptProcessingBatch
    # The tokens in a prompt's pieces: all except its last one.
    scope = threading.local()

    def generate_step(right: Right, input_ids: mx.array, *args: Any, **options: Any) -> Any:
        scope.prompt = input_ids.size - 1
        try:
            yield from right(input_ids, *args, **options)
        finally:
            scope.prompt = 0

    def prompt_step(right: Right, self: Any) -> Any:
        scope.prompt = mx.inf  # only pieces come here
        try:
            return right(self)
        finally:
            scope.prompt = 0

    def update(right: Right, self: Any, keys: mx.array, values: mx.array) -> Any:
        single = self.prefill_length is None and keys.shape[2] == 1
        if single and self.offset < getattr(scope, "prompt", 0):
            hits.hit()
            return plain.update_and_fetch(self, keys, values)
        return right(self, keys, values)

    return together(
        wrap(compat.generation(), "generate_step", generate_step),
        wrap(batch, "prompt_step", prompt_step),
        wrap(ring, "update_and_fetch", update),
    )
