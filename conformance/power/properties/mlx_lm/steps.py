"""The part of a step of mlx-lm's ``BatchGenerator`` that no schedule shows: who is padded."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from typing import Any
from unittest import mock

from mlx_lm.models import base, cache

from conformance.backend.stub_model import StubModel
from conformance.core.properties import Property

# The package has a function of the same name.
generate: Any = importlib.import_module("mlx_lm.generate")


def step_properties() -> list[Property]:
    """The property of prompts that are prefilled together."""
    batches = ("GenerationBatch.*", "PromptProcessingBatch.*", "BatchGenerator.*")
    return [Property("steps: who is padded", "mlx_lm/generate.py", batches, _padded)]


def _padded() -> Iterator[str]:
    """Caches are prepared for padding only if rows differ in length."""
    for prompts, wanted in (
        ([[1, 2], [4, 3], [5, 6]], []),
        ([[1, 2, 3, 4], [5, 6]], [{"lengths": [3, 1], "right_padding": [0, 2]}]),
    ):
        model = StubModel(base, lambda: [cache.KVCache()])
        # No default is read, so that a mutant of one is not taken for tested.
        generator = generate.BatchGenerator(
            model,
            max_tokens=4,
            completion_batch_size=4,
            prefill_batch_size=4,
            prefill_step_size=8,
        )
        prepare = mock.patch.object(
            cache.BatchKVCache, "prepare", autospec=True, side_effect=cache.BatchKVCache.prepare
        )
        with prepare as called:
            generator.insert(prompts)
            generator.next()
        got = [call.kwargs for call in called.call_args_list]
        if got != wanted:
            yield f"of {prompts} caches are prepared for {got}, not {wanted}"
