"""The kinds of models that a library's server treats differently, by what its own code asks.

``conformance/core/representatives.toml`` has a family of each, which servers run by default.
"""

from __future__ import annotations

from typing import Any

import mlx.core as mx
from mlx_lm.models.cache import can_trim_prompt_cache, make_prompt_cache

# More tokens than the windows and chunks of families have.
_TOKENS = 48


def kind_for_mlx_lm(model: Any) -> str:
    """How ``mlx_lm.server`` serves a model, and what it keeps of its prompts.

    Source: server.py, ``ModelProvider._load`` (merge); ``LRUPromptCache`` (whether caches can be
    cut back to a common beginning, at first and once their windows are full).
    """
    caches = make_prompt_cache(model)
    served = "in batches" if all(hasattr(cache, "merge") for cache in caches) else "one by one"
    if not can_trim_prompt_cache(caches):
        return f"{served}, kept whole"
    mx.eval(model(mx.array([[1] * _TOKENS]), cache=caches))
    return f"{served}, {'cut back' if can_trim_prompt_cache(caches) else 'cut back at first'}"


def kind_for_mlx_vlm(model: Any) -> str:
    """How ``mlx_vlm.server`` serves a model, and what it keeps of its prompts.

    Source: server/generation.py, ``_run_impl`` (denoising models); apc.py, ``model_apc_mode``
    (blocks, or the whole caches).
    """
    from mlx_vlm.apc import model_apc_mode  # noqa: PLC0415 - not every release has these
    from mlx_vlm.generate.diffusion import is_diffusion_model  # noqa: PLC0415

    if is_diffusion_model(model):
        return "denoised"
    mode = model_apc_mode(getattr(model, "language_model", model))
    return f"in batches, kept {mode or 'never'}"
