"""Defects of the single stream that a batch has as well."""

from __future__ import annotations

from typing import Any

import mlx.core as mx

from conformance.backend.block_sparse import blocks_of_positions
from conformance.core.faults.declaration import Hits
from conformance.core.faults.patching import Patch, Right, replace, together, wrap
from conformance.core.mends import mend
from conformance.plugins.mlx_vlm.library_parts import part

_SCALED = {
    "granite": "GraniteModel",
    "granitemoe": "GraniteMoEModel",
    "minicpm": "MiniCPMModel",
    "minicpm3": "MiniCPM3Model",
}


def _language(family: str) -> Any:
    return part(f"models.{family}.language")


@mend("embedding-multiplier-of-ids", single_stream=True)
def embeddings_of_ids_are_scaled(hits: Hits) -> Patch:
    """Embeddings are multiplied, whether they are given or made of ids."""

    def model(
        right: Right, self: Any, inputs: mx.array, *args: Any, inputs_embeds: Any = None
    ) -> Any:
        if inputs_embeds is None:
            hits.hit()
            inputs_embeds = self.embed_tokens(inputs)
        return right(self, inputs, *args, inputs_embeds=inputs_embeds)

    return together(
        *(wrap(getattr(_language(of), name), "__call__", model) for of, name in _SCALED.items())
    )


@mend("phi3small-masks-rows", single_stream=True)
def unused_tokens_are_masked(hits: Hits) -> Patch:
    """The logits of unused tokens are minus infinity, in every row."""
    module = _language("phi3small")

    def language(
        _: Right,
        self: Any,
        inputs: mx.array,
        cache: Any = None,
        inputs_embeds: Any = None,
        **__: Any,
    ) -> Any:
        hits.hit()
        hidden = self.model(inputs, cache, inputs_embeds=inputs_embeds)
        logits = self.model.embed_tokens.as_linear(hidden)
        if self.mup_width_multiplier:
            logits = logits / self.mup_width_multiplier
        columns = mx.arange(logits.shape[-1])[:, None]
        unused = mx.any(columns == self._dummy_tokenizer_ids, axis=-1)
        logits = mx.where(unused, -mx.inf, logits)
        return module.LanguageModelOutput(logits=logits)

    return wrap(module.LanguageModel, "__call__", language)


@mend("phi3small-block-sparse-scores", single_stream=True)
def blocks_are_of_positions(hits: Hits) -> Patch:
    """The causal mask hides the keys where it is false, and blocks are cut over positions."""
    return blocks_of_positions(_language("phi3small").Attention, hits)


@mend("hy-v4-indexer-of-first-length", single_stream=True)
def the_best_keys_of_any_length(hits: Hits) -> Patch:
    """The best keys are kept, whatever length the process has seen first."""
    module = part("models.hy_v4.indexer")

    def partition(_: Right, top_k: int, *masked: bool) -> Any:
        def best(q: mx.array, k: mx.array, weights: mx.array, mask: Any = None) -> mx.array:
            hits.hit()
            scores = mx.maximum(q @ k.swapaxes(-1, -2), 0)
            scores = (scores * weights.swapaxes(-1, -2)[..., None]).sum(axis=1, keepdims=True)
            if any(masked):
                scores = mx.where(mask, scores, -mx.inf)
            return mx.argpartition(scores, kth=-top_k, axis=-1)

        return best

    return wrap(module, "_partition_scores", partition)


@mend("glm-moe-dsa-cast-predicate", single_stream=True)
def the_predicate_of_casts_is_read(hits: Hits) -> Patch:
    """Which parameters keep their dtype is a property, read as DeepSeek-V3.2's is."""
    module = _language("glm_moe_dsa")

    def predicate(model: Any) -> Any:
        hits.hit()
        return module.DSV32Model.cast_predicate.fget(model)

    return replace(module.LanguageModel, "cast_predicate", property(predicate))
