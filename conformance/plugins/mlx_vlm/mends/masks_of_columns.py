"""Defects of the mixtures of experts of Qwen3: what they take a batch's longest row for."""

from __future__ import annotations

import importlib
from typing import Any

import mlx.core as mx

from conformance.core.faults.declaration import Hits
from conformance.core.faults.patching import Patch, Right, together, wrap
from conformance.core.mends import mend

_LANGUAGES = ("mlx_vlm.models.qwen3_vl_moe.language", "mlx_vlm.models.qwen3_omni_moe.language")


@mend(
    "qwen3-vl-moe-mask-of-largest-offset",
    "qwen3-omni-moe-mask-of-largest-offset",
    "apc-mask-of-largest-offset",
)
def masks_have_all_columns(hits: Hits) -> Patch:
    """The mask has as many columns as the keys, and a row that is left alone has its own offset."""
    base = importlib.import_module("mlx_vlm.models.base")
    whole: list[Any] = []

    def attention(right: Right, self: Any, x: Any, mask: Any = None, *args: Any, **kw: Any) -> Any:
        whole.append(mask)
        try:
            return right(self, x, mask, *args, **kw)
        finally:
            whole.pop()

    def attend(right: Right, queries: Any, keys: Any, *args: Any, mask: Any, **kw: Any) -> Any:
        columns = base.kv_sequence_length(keys)
        if isinstance(mask, mx.array) and mask.shape[-1] < columns:
            hits.hit()
            mask = whole[-1][..., :columns]
        return right(queries, keys, *args, mask=mask, **kw)

    def offset(right: Right, cache: Any) -> int:
        found: int = right(cache)
        own = getattr(cache, "offset", None)
        if not isinstance(own, mx.array) or own.size != 1:
            return found
        row = int(own.max())
        hits.hit_if(row != found)
        return row

    languages = [importlib.import_module(name) for name in _LANGUAGES]
    return together(
        *(wrap(language.Attention, "__call__", attention) for language in languages),
        *(wrap(language, "scaled_dot_product_attention", attend) for language in languages),
        *(wrap(language, "cache_position_offset", offset) for language in languages),
    )
