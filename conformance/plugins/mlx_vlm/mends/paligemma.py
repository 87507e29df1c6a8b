"""Defects of PaliGemma, whose prompts attend both ways."""

from __future__ import annotations

from typing import Any

import mlx.core as mx

from conformance.core.faults.declaration import Hits
from conformance.core.faults.patching import Patch, Right, replace, wrap
from conformance.core.mends import mend
from conformance.plugins.mlx_vlm.library_parts import part


@mend("paligemma-prompt-not-whole", other_pieces=True)
def prompts_are_prefilled_whole(hits: Hits) -> Patch:
    """The language model too says that prompts which attend both ways are not cut in pieces."""

    def policy(self: Any, **_: Any) -> bool:
        whole = bool(getattr(self.config, "use_bidirectional_attention", False))
        hits.hit_if(whole)
        return not whole

    return replace(
        part("models.paligemma.language").LanguageModel, "chunked_prefill_policy", policy
    )


@mend("paligemma-padding-attended", "paligemma-padding-attended-images", other_pieces=True)
def padding_is_masked(hits: Hits) -> Patch:
    """Where prompts attend both ways, a mask keeps the padding of a batch out."""

    def called(right: Right, self: Any, inputs: Any, **options: Any) -> Any:
        cache: Any = options.get("cache")
        padding: Any = getattr(cache[0], "left_padding", None) if cache else None
        whole = bool(getattr(self.config, "use_bidirectional_attention", False))
        if (
            whole
            and options.get("mask") is None
            and isinstance(padding, mx.array)
            and bool(padding.any())
        ):
            hits.hit()
            # A quantized cache reports a size of 0.
            columns = mx.arange(cache[0]._idx + inputs.shape[1])
            options["mask"] = (columns >= padding[:, None])[:, None, None]
        return right(self, inputs, **options)

    return wrap(part("models.paligemma.language").GemmaModel, "__call__", called)


@mend("paligemma-prefix-of-whole-prompts", other_pieces=True)
def no_prefix_is_reused(hits: Hits) -> Patch:
    """Nothing of a prompt that attends both ways is reused for one that goes on otherwise."""
    generator = part("generate.ar").BatchGenerator

    def pick(right: Right, self: Any, *args: Any) -> Any:
        config = getattr(getattr(self.model, "language_model", self.model), "config", None)
        found = right(self, *args)
        if found is None or not getattr(config, "use_bidirectional_attention", False):
            return found
        hits.hit()
        self.apc.release_hit(found)
        return None

    return wrap(generator, "_apc_pick_for", pick)
