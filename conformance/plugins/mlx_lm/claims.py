"""What mlx-lm's generator says of its work, measured a second time."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from typing import Any

from conformance.backend.cache_entries import leaves
from conformance.backend.redrawing import ComparedSampler
from conformance.backend.weighing import arrays
from conformance.core.engine_options import EngineOptions
from conformance.core.schedule import Stage
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
        each = list(leaves(compat.live_caches(self._generator)))
        empty = sum(bool(cache.empty()) for cache in each)
        without = sum(not any(a.ndim > 1 for a in arrays(cache)) for cache in each)
        self._add("caches that hold nothing", empty, without, without)

    def rows(self, options: EngineOptions) -> None:
        """No more prompts and rows at once than the generator was made for."""
        at = Counter(compat.uids_by_stage(self._generator).values())
        most = max(options.prefill_batch_size, options.completion_batch_size)
        self._add("prompts at once", at[Stage.PREFILL], 0, options.prefill_batch_size)
        self._add("rows at once", at[Stage.DECODE], 0, most)

    def ends(self, response: Any) -> None:
        """Where a prompt ends, its last piece ends, and all of it is done."""
        done, whole = response.progress
        self._add("ends of the last piece of a prompt", response.end_of_segment, 1, 1)
        self._add("tokens of a prompt that has ended", done, whole, whole)

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
        """Tokens of prompts that the step processed, without those that decoding begins with."""
        if self._prompt_tokens is not None:
            self._add("prompt tokens", self._prompt_tokens, counted, counted)

    def drawn(self, sampler: object) -> None:
        """What a library's sampler drew."""
        if isinstance(sampler, ComparedSampler):
            calls = sampler.drawn()
            # One for rows whose prompts have ended, and one for those that decode.
            self._add("calls of a sampler that rows share", len(calls), 0, 2)
            for mine, again in calls:
                what = "tokens drawn with the same random numbers"
                self._made.append(Claim(what, str(mine), str(again), mine == again))

    def _add(self, what: str, said: float, least: float, most: float) -> None:
        self._made.append(_claim(what, said, least, most))


def counts(stats: Any, *, prompts: int, tokens: int) -> tuple[Claim, ...]:
    """The counts of a whole call."""
    return (
        _claim("prompt tokens", stats.prompt_tokens, prompts, prompts),
        _claim("tokens produced", stats.generation_tokens, tokens, tokens),
    )


def _claim(what: str, said: float, least: float, most: float) -> Claim:
    found = f"{least:g}" if least == most else f"{least:g} to {most:g}"
    return Claim(what, f"{said:g}", found, least <= said <= most)
