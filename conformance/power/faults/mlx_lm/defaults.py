"""The generator's own sampler and processors, and rows that have others."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from mlx_lm.models.cache import TokenBuffer

from conformance.backend.shared_faults import OUTPUT
from conformance.core.faults.declaration import Hits
from conformance.core.faults.patching import Patch, Right, replace, together, wrap
from conformance.power.faults.mlx_lm.tools import generate, mlx_lm_fault

_BATCH = generate.GenerationBatch
_fault = partial(
    mlx_lm_fault,
    fault_class="samplers",
    source="no report: GenerationBatch keeps a sampler for each row and a fallback",
    where=OUTPUT,
)


def _greedy(batch: Any, start: int, stop: int, hits: Hits) -> None:
    """Rows in that range that have the generator's sampler become greedy."""
    for row in range(start, stop):
        if batch.samplers[row] is batch.fallback_sampler is not generate.greedy_sampler:
            hits.hit()
            batch.samplers[row] = generate.greedy_sampler


def _has_own(batch: Any) -> bool:
    return any(sampler is not batch.fallback_sampler for sampler in batch.samplers)


@_fault("G1.sampler-lost-to-one-that-joins", kills=("samplers/own_joins_defaults",))
def sampler_lost_to_one_that_joins(hits: Hits) -> Patch:
    """When a row with a sampler of its own joins, rows with the generator's become greedy."""

    def extend(right: Right, self: Any, batch: Any) -> None:
        rows, own = len(self.uids), _has_own(batch)
        right(self, batch)
        if own:
            _greedy(self, 0, rows, hits)

    return wrap(_BATCH, "extend", extend)


@_fault("G1.sampler-lost-beside-others", kills=("samplers/defaults_join_own",))
def sampler_lost_beside_others(hits: Hits) -> Patch:
    """A row with the generator's sampler that joins rows with their own becomes greedy."""

    def extend(right: Right, self: Any, batch: Any) -> None:
        rows, own = len(self.uids), _has_own(self)
        right(self, batch)
        if own:
            _greedy(self, rows, len(self.uids), hits)

    return wrap(_BATCH, "extend", extend)


@_fault(
    "G2.no-processors-once-all-have-left",
    source="no report: GenerationBatch asks whether any row has processors",
    kills=("samplers/processors_leave",),
)
def no_processors_once_all_have_left(hits: Hits) -> Patch:
    """After the last row with processors has left, those that join get none."""

    def filter_rows(right: Right, self: Any, keep: Sequence[int]) -> None:
        had = any(self.logits_processors)
        right(self, keep)
        if had and keep and not any(self.logits_processors):
            self._without = True

    def extend(right: Right, self: Any, batch: Any) -> None:
        rows = len(self.uids)
        right(self, batch)
        if rows and getattr(self, "_without", False) and any(self.logits_processors):
            hits.hit()
            self.logits_processors[rows:] = [()] * (len(self.uids) - rows)

    return together(wrap(_BATCH, "filter", filter_rows), wrap(_BATCH, "extend", extend))


@_fault(
    "G2.history-without-the-prefix",
    source="no report of mlx-lm: mlx-vlm has it (docs/defects/mlx_vlm)",
    kills=("prefix_caching/penalised",),
)
def history_without_the_prefix(hits: Hits) -> Patch:
    """Processors are not shown the tokens of the cache that a request goes on from."""
    # A list of tokens goes from the call to the batch as the same object, which grows.
    cached: dict[int, tuple[list[int], int]] = {}

    def insert(right: Right, self: Any, *args: Any, **options: Any) -> Any:
        given = options.get("all_tokens") or ()
        cached.update({id(tokens): (tokens, len(tokens)) for tokens in given})
        return right(self, *args, **options)

    def buffer(tokens: list[int]) -> Any:
        _, known = cached.get(id(tokens), ([], 0))
        hits.hit_if(known)
        return TokenBuffer(tokens[known:])

    found = wrap(generate.BatchGenerator, "insert_segments", insert)
    return together(found, replace(generate, "TokenBuffer", buffer))


@_fault(
    "G2.processors-kept-of-plain-rows-that-left",
    source="mlx-lm #1772: the list was cut only where some row had processors",
    kills=("samplers/plain_leaves",),
)
def processors_kept_of_plain_rows_that_left(hits: Hits) -> Patch:
    """While no row has processors, the list of them stays as long as the batch was."""

    def filter_rows(right: Right, self: Any, keep: Sequence[int]) -> None:
        rows = len(self.uids)
        right(self, keep)
        if keep and len(keep) < rows and not any(self.logits_processors):
            hits.hit()
            self.logits_processors += [()] * (rows - len(keep))

    return wrap(_BATCH, "filter", filter_rows)
