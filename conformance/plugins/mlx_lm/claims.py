"""What mlx-lm's generator says of its rows and caches, looked up a second time."""

from __future__ import annotations

from collections import Counter
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
        found = f"{least:g}" if least == most else f"{least:g} to {most:g}"
        self._made.append(Claim(what, f"{said:g}", found, least <= said <= most))
