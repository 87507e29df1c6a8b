"""Defects of PaliGemma, whose prompts attend both ways."""

from __future__ import annotations

import importlib
from typing import Any

import mlx.core as mx

from conformance.core.faults.declaration import Hits
from conformance.core.faults.patching import Patch, Right, replace, wrap
from conformance.core.mends import mend


def _language() -> Any:
    return importlib.import_module("mlx_vlm.models.paligemma.language")


@mend("paligemma-prompt-not-whole")
def prompts_are_prefilled_whole(hits: Hits) -> Patch:
    """The language model too says that prompts which attend both ways are not cut in pieces."""

    def policy(self: Any, **_: Any) -> bool:
        whole = bool(getattr(self.config, "use_bidirectional_attention", False))
        hits.hit_if(whole)
        return not whole

    return replace(_language().LanguageModel, "chunked_prefill_policy", policy)


@mend("paligemma-padding-attended", "paligemma-padding-attended-images")
def padding_is_masked(hits: Hits) -> Patch:
    """Where prompts attend both ways, a mask keeps the padding of a batch out."""

    def called(
        right: Right, self: Any, inputs: Any, inputs_embeds: Any = None, mask: Any = None,
        cache: Any = None,
    ) -> Any:  # fmt: skip
        padding = getattr(cache[0], "left_padding", None) if cache else None
        whole = bool(getattr(self.config, "use_bidirectional_attention", False))
        if whole and mask is None and isinstance(padding, mx.array) and bool(padding.any()):
            hits.hit()
            columns = mx.arange(cache[0].size() + inputs.shape[1])
            mask = (columns >= padding[:, None])[:, None, None]
        return right(self, inputs, inputs_embeds, mask, cache)

    return wrap(_language().GemmaModel, "__call__", called)
