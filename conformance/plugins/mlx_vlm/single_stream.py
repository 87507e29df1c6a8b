"""The library's single stream of one request, and one pass over all of its tokens."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mlx.core as mx
import numpy as np
from mlx_vlm.models.cache import make_prompt_cache

from conformance.core.engine_options import EngineOptions
from conformance.core.schedule import Request
from conformance.core.trace import Stream
from conformance.plugins.mlx_vlm import compat, inputs, quantization
from conformance.plugins.mlx_vlm.budgets import criteria_of
from conformance.plugins.mlx_vlm.inputs import inputs_of
from conformance.plugins.mlx_vlm.model import LoadedModel
from conformance.plugins.mlx_vlm.sampling import make_processors


def text_only(model: LoadedModel, tokens: tuple[int, ...]) -> bool:
    """Whether no token could be mistaken for the placeholder of an image."""
    low, high = model.family.tokens
    mixed = model.family.facts.modalities != ("text",)
    return not mixed or all(low <= token < high for token in tokens)


def cache_of(model: LoadedModel, request: Request, options: EngineOptions) -> list[Any]:
    """The caches of one row for ``request``, quantized if the options say so."""
    if options.kv is not None:
        return quantization.make_cache(model.language_model, options.kv, len(request.prompt))
    made: list[Any] = make_prompt_cache(model.language_model, options.max_kv_size)
    return made


def decode(
    model: LoadedModel,
    request: Request,
    step_size: int | None,
    steps: int,
    *,
    cache: list[Any] | None,
    sampler: Callable[[mx.array], mx.array] | None,
    **options: Any,
) -> Stream:
    """The first ``steps`` tokens of the library's own single stream, with their logprobs."""
    made = inputs_of(model, request)
    tokens, rows = [], []
    criteria = criteria_of(request.budget) if request.budget is not None else None
    if criteria is not None:
        options["thinking_budget_criteria"] = criteria
    for token, logprobs in compat.generation().generate_step(
        made.input_ids,
        model.model,
        made.pixel_values,
        made.attention_mask,
        max_tokens=steps,
        sampler=sampler,
        logits_processors=make_processors(request.processors) or None,
        prompt_cache=cache,
        prefill_step_size=step_size,
        **options,
        **made.extra,
    ):
        tokens.append(int(token))
        rows.append(logprobs)
        if criteria is not None:
            criteria(int(token))
    table = np.array(mx.stack(rows).astype(mx.float32))  # [steps, vocab]
    return Stream(tokens=tuple(tokens), logprobs=table)


def one_pass(model: LoadedModel, tokens: tuple[int, ...]) -> np.ndarray:
    """Logprobs ``[length, vocab]`` of a prefill of all tokens; some models return fewer."""
    cache = model.cache()
    made = inputs_of(model, Request("whole", tokens, 1))
    output = model.language_model(made.input_ids, cache=cache, **inputs.embed(model, made))
    return logprobs_of(output.logits[0])


def logprobs_of(logits: mx.array) -> np.ndarray:
    """Logprobs ``[..., vocab]`` in float32, normalised like the library in the logits' dtype."""
    return np.array((logits - mx.logsumexp(logits, axis=-1, keepdims=True)).astype(mx.float32))
