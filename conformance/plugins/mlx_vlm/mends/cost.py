"""Work that the right answer does not need."""

from __future__ import annotations

import importlib
from typing import Any

from conformance.core.faults.declaration import Hits
from conformance.core.faults.patching import Patch, Right, wrap
from conformance.core.mends import mend

# Columns of a batch of prompts for each token in them, at most.
_PADDED = 1.25


@mend("prompts-padded-to-the-longest")
def prompts_of_a_batch_are_alike(hits: Hits) -> Patch:
    """Only prompts of about one length are prefilled together; the others come next."""
    ar: Any = importlib.import_module("mlx_vlm.generate.ar")

    def admit(right: Right, generator: Any, **options: Any) -> Any:
        waiting = generator._unprocessed_sequences
        count = min(generator.prefill_batch_size, len(waiting))
        lengths = [len(sequence[1]) for sequence in waiting[:count]]
        fit = next((n for n in range(count, 1, -1) if _alike(lengths[:n])), min(count, 1))
        if generator._prompt_batch is not None or fit == count:
            return right(generator, **options)
        hits.hit()
        generator._unprocessed_sequences = waiting[:fit]
        try:
            return right(generator, **options)
        finally:
            generator._unprocessed_sequences = [
                *generator._unprocessed_sequences,
                *waiting[fit:],
            ]

    return wrap(ar.BatchGenerator, "_next", admit)


def _alike(lengths: list[int]) -> bool:
    return max(lengths) * len(lengths) <= _PADDED * sum(lengths)
