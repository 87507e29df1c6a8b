"""Invalid calls of ``BatchGenerator``: each must raise a clear error and change nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from mlx_lm.generate import BatchGenerator

from conformance.core.invalid_call import watched
from conformance.core.trace import ProbeResult
from conformance.plugins.mlx_lm.compat import digest

_PROMPTS = [[5, 6, 7], [8, 9]]
_UNKNOWN_UID = 1_000_003


def _insert(**options: Any) -> Callable[[BatchGenerator], object]:
    prompts = options.pop("prompts", _PROMPTS)
    return lambda generator: generator.insert([list(p) for p in prompts], **options)


def _construct(**options: Any) -> Callable[[BatchGenerator], object]:
    return lambda generator: BatchGenerator(generator.model, **options)


PROBES: Mapping[str, Callable[[BatchGenerator], object]] = {
    "mismatched_max_tokens": _insert(max_tokens=[4]),
    "mismatched_samplers": _insert(samplers=[None]),
    "mismatched_processors": _insert(logits_processors=[[], [], []]),
    "mismatched_caches": _insert(caches=[None]),
    "mismatched_all_tokens": _insert(all_tokens=[[], [], []]),
    "empty_prompt": _insert(prompts=[[5, 6, 7], []]),
    "zero_max_tokens": _insert(max_tokens=[4, 0]),
    "negative_max_tokens": _insert(max_tokens=[4, -1]),
    "unknown_uid": lambda generator: generator.remove([_UNKNOWN_UID]),
    "zero_completion_batch": _construct(completion_batch_size=0, prefill_batch_size=0),
    "negative_prefill_batch": _construct(prefill_batch_size=-1),
    "zero_prefill_step": _construct(prefill_step_size=0),
}


def probe(generator: BatchGenerator, kind: str) -> ProbeResult:
    """Make the invalid call ``kind`` on a working generator; what it changed is in the result."""
    return watched(kind, lambda: PROBES[kind](generator), lambda: digest(generator))
