"""Samplers and processors that see other rows, or not all of their own; what is said of tokens."""

from __future__ import annotations

from typing import Any

import mlx.core as mx

from conformance.core.faults.declaration import Hits
from conformance.core.faults.patching import Patch, Right, after, wrap
from conformance.core.mends import mend
from conformance.plugins.mlx_vlm import compat


@mend("xtc-threshold-of-all-rows")
def xtc_of_each_row(hits: Hits) -> Patch:
    """XTC looks for the least likely of the likely tokens in each row by itself."""

    def apply_xtc(right: Right, logits: mx.array, *args: Any, **options: Any) -> mx.array:
        hits.hit_if(len(logits) > 1)
        return mx.concatenate([right(row[None], *args, **options) for row in logits])

    return wrap(compat.part("sample_utils"), "apply_xtc", apply_xtc)


@mend("processors-after-reused-prefix")
def processors_see_the_prefix(hits: Hits) -> Patch:
    """A row that reuses a prefix has the prefix's tokens in the history of its processors."""

    def made(_: None, self: Any, *args: Any, **options: Any) -> None:
        del args
        found = options.get("apc_meta") or ()
        for row, meta in enumerate(found if self._token_context else ()):
            if meta is not None and meta.get("prefix_len", 0):
                hits.hit()
                self._token_context[row] = list(meta["full_input_ids"])

    return after(compat.generation().PromptProcessingBatch, "__init__", made)


@mend("drafted-tokens-without-logprob")
def what_is_not_computed_is_not_said(hits: Hits) -> Patch:
    """Nothing is said of the probability of tokens of a draft, as it is not computed."""

    def unsaid(responses: Any, _: Any) -> Any:
        for response in responses:
            hits.hit()
            response.token_logprob = None
        return responses

    return after(compat.generation().SpeculativeGenerationBatch, "next", unsaid)
