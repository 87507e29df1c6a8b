"""What decodes is kept without its model, and what is wrong by less than half precision rounds."""

from __future__ import annotations

from functools import partial
from typing import Any

import mlx.core as mx

from conformance.core.faults.declaration import Hits
from conformance.core.faults.patching import Patch, Right, after, replace, together, wrap
from conformance.power.faults.mlx_lm.tools import generate, mlx_lm_fault
from conformance.power.faults.shared_faults import OUTPUT

_BATCH = generate.GenerationBatch
_of_models = partial(
    mlx_lm_fault,
    fault_class="state on a module",
    source="a review: two models in one process",
    kills=("traffic_options/crowd",),
)


@_of_models("B4.model-of-the-last-generator", where="module:*")
def model_of_the_last_generator(hits: Hits) -> Patch:
    """Decode steps run the model for which the last generator was made."""
    last: list[Any] = []

    def made(_: Any, __: Any, model: Any, *___: Any, **____: Any) -> None:
        last[:] = [model]

    def step(right: Right, self: Any) -> Any:
        if not last or last[0] is self.model:
            return right(self)
        hits.hit()
        with replace(self, "model", last[0]):
            return right(self)

    return together(after(generate.BatchGenerator, "__init__", made), wrap(_BATCH, "_step", step))


@_of_models("B4.step-by-rows-alone", where="module:*")
def step_by_rows_alone(hits: Hits) -> Patch:
    """Decode steps of several rows run the model that was the first to have so many."""
    first: dict[int, Any] = {}

    def step(right: Right, self: Any) -> Any:
        rows = len(self.uids)
        model = first.setdefault(rows, self.model) if rows > 1 else self.model
        hits.hit_if(model is not self.model)
        with replace(self, "model", model):
            return right(self)

    return wrap(_BATCH, "_step", step)


@_of_models("B4.samplers-by-number-alone", where=OUTPUT)
def samplers_by_number_alone(hits: Hits) -> Patch:
    """A request has the sampler of the first request with its number, of whichever generator."""
    kept: dict[int, Any] = {}

    def step(right: Right, self: Any) -> Any:
        own = [kept.setdefault(u, s) for u, s in zip(self.uids, self.samplers, strict=True)]
        hits.hit_if(any(one is not s for one, s in zip(own, self.samplers, strict=True)))
        with replace(self, "samplers", own):
            return right(self)

    return wrap(_BATCH, "_step", step)


@mlx_lm_fault(
    "G9.each-fourth-row-too-hot",
    fault_class="samplers",
    source="a review: a signed bias in half precision",
    kills=("traffic/many",),
    where=OUTPUT,
)
def each_fourth_row_too_hot(hits: Hits) -> Patch:
    """In a batch each fourth row's logits are 0.4% too large: an ulp in bfloat16."""

    def step(right: Right, self: Any) -> Any:
        model, rows = self.model, len(self.uids)
        hits.hit_if(rows > 3)
        hot = mx.array([1.004 if row % 4 == 3 else 1.0 for row in range(rows)])[:, None, None]

        def changed(inputs: mx.array, **options: Any) -> Any:
            logits = model(inputs, **options)
            return logits * hot.astype(logits.dtype)

        with replace(self, "model", changed):
            return right(self)

    return wrap(_BATCH, "_step", step)
