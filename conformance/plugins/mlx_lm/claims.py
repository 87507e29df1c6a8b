"""What mlx-lm's generator says of its work, measured a second time."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from conformance.backend.redrawing import ComparedSampler
from conformance.backend.weighing import arrays
from conformance.core.trace import Claim
from conformance.plugins.mlx_lm import compat


class Claims:
    """Gathers claims until a step takes them."""

    def __init__(self, generator: Any) -> None:
        self._generator = generator
        self._made: list[Claim] = []
        self._prompt_tokens: int | None = None

    def taken(self) -> tuple[Claim, ...]:
        """The claims since this was called before."""
        made, self._made = tuple(self._made), []
        return made

    def live_bytes(self) -> None:
        """Of all caches: queued, in prefill and in decode."""
        said = compat.cache_bytes(self._generator)
        held = sum(int(a.nbytes) for a in arrays(compat.live_caches(self._generator)) if a.ndim > 1)
        self._add("bytes of live caches", said, held, held)

    def next(self) -> tuple[Sequence[Any], Sequence[Any]]:
        """One ``next()`` of the generator, with what its ``stats`` say of it."""
        if not hasattr(self._generator, "stats"):  # up to 0.31.1
            prompts, tokens = self._generator.next()
            return prompts, tokens
        begin = time.perf_counter()
        with self._generator.stats() as stats:
            prompts, tokens = self._generator.next()
        seconds = time.perf_counter() - begin
        if hasattr(stats, "decode_time"):
            decoded = bool(tokens)
            self._add("tokens produced", stats.generation_tokens, len(tokens), len(tokens))
            self._add("steps of decoding", stats.generation_steps, decoded, decoded)
            self._add("seconds of decoding", stats.decode_time, 0.0, seconds * decoded)
            self._add("seconds of prefill", stats.prompt_time, 0.0, seconds)
            self._prompt_tokens = stats.prompt_tokens
        return prompts, tokens

    def prompt_tokens(self, counted: int) -> None:
        """How many tokens of prompts the step processed, but for those that decoding begins with."""
        if self._prompt_tokens is not None:
            self._add("prompt tokens", self._prompt_tokens, counted, counted)

    def drawn(self, sampler: object) -> None:
        """What a library's sampler drew."""
        if isinstance(sampler, ComparedSampler):
            for mine, again in sampler.drawn():
                what = "tokens drawn with the same random numbers"
                self._made.append(Claim(what, str(mine), str(again), mine == again))

    def _add(self, what: str, said: float, least: float, most: float) -> None:
        found = f"{least:g}" if least == most else f"{least:g} to {most:g}"
        self._made.append(Claim(what, f"{said:g}", found, least <= said <= most))
