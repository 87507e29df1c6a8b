"""Boundaries of prefill pieces: a token that is counted twice or not at all."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from conformance.core.faults.base import Hits
from conformance.core.faults.patching import Injection, exchange
from conformance.plugins.mlx_lm.faults.tools import generate, mlx_lm_fault

Tokens = list[int]


def _at_boundaries(change: Callable[[Tokens, Tokens], Tokens]) -> Injection:
    """``change`` gets what of a prompt is in the cache, and its next piece."""

    def spoil(right: Callable[..., Any], hits: Hits) -> Callable[..., Any]:
        def prompt(self: Any, tokens: list[Tokens]) -> None:
            wrong = [
                change(seen, piece) if seen else piece
                for seen, piece in zip(self.tokens, tokens, strict=True)
            ]
            if wrong != tokens:
                hits.hit()
            right(self, wrong)

        return prompt

    return exchange(generate.PromptProcessingBatch, "prompt", spoil)


FAULTS = (
    mlx_lm_fault(
        name="F13.token-counted-twice",
        fault_class="chunk",
        source="issue trackers: prefill in pieces",
        summary="Each piece of a prompt begins with the last token of the one before.",
        needs=(),
        kills=("chunked", "prompt_cache"),
        where="input:tokens",
        inject=_at_boundaries(lambda seen, piece: [*seen[-1:], *piece]),
    ),
    mlx_lm_fault(
        name="F13.token-left-out",
        fault_class="chunk",
        source="issue trackers: prefill in pieces",
        summary="Each piece of a prompt but the first lacks its first token.",
        needs=(),
        kills=("chunked", "prompt_cache"),
        where="input:tokens",
        inject=_at_boundaries(lambda _, piece: piece[1:] or piece),
    ),
)
