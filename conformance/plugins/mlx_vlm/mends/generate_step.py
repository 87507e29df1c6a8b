"""Defects of `generate_step`, which is the single stream."""

from __future__ import annotations

import importlib
from typing import Any

import mlx.core as mx
from mlx_vlm.models import cache as caches

from conformance.core.faults.declaration import Hits
from conformance.core.faults.patching import Patch, Right, together, wrap
from conformance.core.mends import mend
from conformance.plugins.mlx_vlm import compat

# The language models whose parameter of token ids has another name than `inputs`.
_OTHER_NAMES = ("phi", "phixtral", "qwen", "recurrent_gemma", "stablelm", "zaya1_vl")


@mend("penalty-of-last-token", "penalty-of-last-token-after-prefix", single_stream=True)
def processors_see_the_whole_prompt(hits: Hits) -> Patch:
    """A logits processor gets all tokens of the prompt, also of its earlier pieces."""

    def generate_step(right: Right, input_ids: mx.array, *args: Any, **options: Any) -> Any:
        prompt = input_ids.flatten()
        given = options.get("logits_processors")
        if given:
            options["logits_processors"] = [_after_prompt(one, prompt, hits) for one in given]
        return right(input_ids, *args, **options)

    return wrap(compat.generation(), "generate_step", generate_step)


def _after_prompt(processor: Any, prompt: mx.array, hits: Hits) -> Any:
    """The processor, which also gets those tokens of the prompt that were not noted."""
    lacking: mx.array | None = None

    def processed(tokens: mx.array, logits: mx.array) -> Any:
        nonlocal lacking
        if lacking is None:
            lacking = prompt[: max(0, prompt.size - tokens.size)]
        hits.hit_if(lacking.size)
        return processor(mx.concatenate([lacking, tokens.astype(prompt.dtype)]), logits)

    return processed


@mend("generate-step-names-inputs", "generate-step-names-inputs-quantized", single_stream=True)
def pieces_are_passed_by_position(hits: Hits) -> Patch:
    """The ids of a piece of the prompt come to the model's parameter of ids, whatever its name."""

    def call(right: Right, self: Any, *args: Any, **options: Any) -> Any:
        if "inputs" not in options:
            return right(self, *args, **options)
        hits.hit()
        return right(self, options.pop("inputs"), *args, **options)

    names = (f"mlx_vlm.models.{name}.language" for name in _OTHER_NAMES)
    models = [importlib.import_module(name).LanguageModel for name in names]
    return together(*(wrap(model, "__call__", call) for model in models))


@mend("kv-policy-alone-and-batched", single_stream=True)
def alone_quantized_as_in_a_batch(hits: Hits) -> Patch:
    """`generate_step` quantizes the layers that a batch quantizes, and from the same token on."""
    module = compat.generation()

    def generate_step(
        right: Right, input_ids: mx.array, model: Any, *args: Any, **given: Any
    ) -> Any:
        if given.get("kv_bits") is None or given.get("prompt_cache") is not None:
            return right(input_ids, model, *args, **given)
        hits.hit()
        names = ("kv_bits", "kv_group_size", "kv_quant_scheme", "quantized_kv_start")
        policy = {name: given.pop(name) for name in names if name in given}
        plain = caches.make_prompt_cache(model.language_model)
        batch = module._make_cache(
            model.language_model, [0], **policy, prefill_length=input_ids.shape[1]
        )
        given["prompt_cache"] = [_as_in(*pair, policy) for pair in zip(plain, batch, strict=True)]
        return right(input_ids, model, *args, **given)

    return wrap(module, "generate_step", generate_step)


def _as_in(plain: Any, batch: Any, policy: dict[str, Any]) -> Any:
    """The cache of one row that is quantized if the batch's cache is."""
    turboquant = importlib.import_module("mlx_vlm.turboquant")
    if isinstance(batch, caches.CacheList):
        inner = plain if isinstance(plain, tuple) else plain.caches
        made = [_as_in(*pair, policy) for pair in zip(inner, batch.caches, strict=True)]
        return tuple(made) if isinstance(plain, tuple) else caches.CacheList(*made)
    if isinstance(batch, turboquant.BatchTurboQuantKVCache):
        return turboquant.TurboQuantKVCache(bits=policy["kv_bits"])
    if isinstance(batch, caches.BatchQuantizedKVCache):
        return caches.QuantizedKVCache(group_size=batch.group_size, bits=batch.bits)
    return plain
