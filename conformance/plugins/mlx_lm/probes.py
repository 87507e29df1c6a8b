"""Invalid calls of ``BatchGenerator``: each must raise a clear error and change nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import mlx.core as mx
from mlx_lm import sample_utils
from mlx_lm.generate import BatchGenerator

from conformance.backend.random_state import can_draw, drawing_kept
from conformance.core.invalid_call import watched
from conformance.core.trace import ProbeResult
from conformance.plugins.mlx_lm.compat import digest

_PROMPTS = [[5, 6, 7], [8, 9]]
_UNKNOWN_UID = 1_000_003
_VOCAB = 8


def _insert(**options: Any) -> Callable[[BatchGenerator], object]:
    prompts = options.pop("prompts", _PROMPTS)
    return lambda generator: generator.insert([list(p) for p in prompts], **options)


def _construct(**options: Any) -> Callable[[BatchGenerator], object]:
    return lambda generator: BatchGenerator(generator.model, **options)


def _draw(**options: Any) -> Callable[[BatchGenerator], object]:
    """Call a sampler with these options: its filters reject bad ones only when called."""
    return lambda _: sample_utils.make_sampler(temp=1.0, **options)(mx.zeros((2, _VOCAB)))


PROBES: Mapping[str, Callable[[BatchGenerator], object]] = {
    "mismatched_max_tokens": _insert(max_tokens=[4]),
    "mismatched_samplers": _insert(samplers=[None]),
    "mismatched_processors": _insert(logits_processors=[[], [], []]),
    "mismatched_caches": _insert(caches=[None]),
    "mismatched_all_tokens": _insert(all_tokens=[[], [], []]),
    "empty_prompt": _insert(prompts=[[5, 6, 7], []]),
    "zero_max_tokens": _insert(max_tokens=[4, 0]),
    "negative_max_tokens": _insert(max_tokens=[4, -1]),
    "sampler_top_k_of_all": _draw(top_k=_VOCAB),
    "sampler_top_k_of_half_a_token": _draw(top_k=1.5),
    "sampler_min_p_over_one": _draw(min_p=1.5),
    "sampler_min_p_below_zero": _draw(min_p=-0.5),
    "sampler_min_tokens_zero": _draw(min_p=0.5, min_tokens_to_keep=0),
    "sampler_min_tokens_of_half": _draw(min_p=0.5, min_tokens_to_keep=1.5),
    "sampler_xtc_threshold_over_half": _draw(xtc_probability=0.5, xtc_threshold=0.6),
    "sampler_xtc_threshold_below_zero": _draw(xtc_probability=0.5, xtc_threshold=-0.1),
    "sampler_xtc_probability_over_one": _draw(xtc_probability=1.5),
    "sampler_penalty_below_zero": lambda _: sample_utils.make_logits_processors(
        repetition_penalty=-1.0
    ),
    "unknown_uid": lambda generator: generator.remove([_UNKNOWN_UID]),
    "zero_completion_batch": _construct(completion_batch_size=0, prefill_batch_size=0),
    "negative_prefill_batch": _construct(prefill_batch_size=-1),
    "zero_prefill_step": _construct(prefill_step_size=0),
}


def probe(generator: BatchGenerator, kind: str) -> ProbeResult:
    """Make the invalid call ``kind`` on a working generator; the result has what it changed."""
    with drawing_kept():  # a damaged state has been seen by then
        return watched(kind, lambda: PROBES[kind](generator), lambda: _state(generator))


def _state(generator: BatchGenerator) -> dict[str, Any]:
    drawn = "can be drawn" if can_draw() else "can be drawn no more"
    return digest(generator) | {"random numbers": drawn}
