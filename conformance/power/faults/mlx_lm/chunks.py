"""Boundaries of prefill pieces: a token that is counted twice or not at all."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from conformance.core.faults.declaration import Hits
from conformance.core.faults.patching import Patch, Right, wrap
from conformance.power.faults.mlx_lm.tools import generate, mlx_lm_fault

Tokens = list[int]
_fault = partial(
    mlx_lm_fault,
    fault_class="chunk",
    source="issue trackers: prefill in pieces",
    kills=("chunked", "prompt_cache"),
    where="input:tokens",
)


def _at_boundaries(change: Callable[[Tokens, Tokens], Tokens], hits: Hits) -> Patch:
    """``change`` gets what of a prompt is in the cache, and its next piece."""

    def prompt(right: Right, self: Any, tokens: list[Tokens]) -> None:
        pairs = zip(self.tokens, tokens, strict=True)
        wrong = [change(seen, piece) if seen else piece for seen, piece in pairs]
        hits.hit_if(wrong != tokens)
        right(self, wrong)

    return wrap(generate.PromptProcessingBatch, "prompt", prompt)


@_fault("F13.token-counted-twice")
def token_counted_twice(hits: Hits) -> Patch:
    """Each piece of a prompt begins with the last token of the one before."""
    return _at_boundaries(lambda seen, piece: [*seen[-1:], *piece], hits)


@_fault("F13.token-left-out")
def token_left_out(hits: Hits) -> Patch:
    """Each piece of a prompt but the first lacks its first token."""
    return _at_boundaries(lambda _, piece: piece[1:] or piece, hits)
