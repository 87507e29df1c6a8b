"""Turns a request's plain sampler and processor descriptions into mlx-lm's callables."""

from __future__ import annotations

from typing import Any

from mlx_lm import sample_utils

from conformance.backend import sampling
from conformance.backend.redrawing import ComparedSampler
from conformance.backend.sampling import ProcessorFn, SamplerFn, SeededSampler, ranked
from conformance.core.errors import ScheduleError
from conformance.core.token_choice import RANDOM, Processor, Sampler


def make_sampler(sampler: Sampler | None) -> SamplerFn | None:
    """The callable for ``sampler``; each call makes a new one, as it may have state.

    Raises:
        ScheduleError: the kind of sampler is unknown.
    """
    if sampler is None:
        return None
    if sampler.kind == "seeded":
        return SeededSampler(float(sampler.args["temperature"]), int(sampler.args["seed"]))
    if sampler.kind in ("library", RANDOM):
        arguments: dict[str, Any] = dict(sampler.args)
        made: SamplerFn = sample_utils.make_sampler(**arguments)
        return made
    if sampler.kind == "compared":
        return ComparedSampler(sample_utils.make_sampler(**sampler.args), sampler.args)
    if sampler.kind == "rank":
        return ranked(int(sampler.args["rank"]))
    raise ScheduleError(
        f"mlx_lm: no sampler of kind {sampler.kind!r}; there are seeded, library, compared, rank, "
        f"{RANDOM}"
    )


def make_processors(processors: tuple[Processor, ...]) -> list[ProcessorFn]:
    """The callables for ``processors``; see ``backend.sampling.make_processors``."""
    return sampling.make_processors(processors, "mlx_lm", sample_utils.make_logits_processors)
