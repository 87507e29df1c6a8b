"""Invalid calls of ``BatchGenerator``: each must be refused clearly and change nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import mlx.core as mx

from conformance.plugins.mlx_vlm import compat
from conformance.trace import ProbeResult

_UNKNOWN_UID = 1_000_003
_WIDTH = 8


def _insert(lengths: tuple[int, ...] = (3, 2), **options: Any) -> Callable[[Any], object]:
    def call(generator: Any) -> object:
        prompts = [list(range(5, 5 + n)) for n in lengths]
        kwargs = [{"inputs_embeds": mx.zeros((1, n, _WIDTH))} for n in lengths]
        return generator.insert(prompts, **{"prompt_kwargs": kwargs, **options})

    return call


def _construct(**options: Any) -> Callable[[Any], object]:
    return lambda generator: compat.generation().BatchGenerator(
        generator.model, generator.processor, **options
    )


PROBES: Mapping[str, Callable[[Any], object]] = {
    "mismatched_max_tokens": _insert(max_tokens=[4]),
    "mismatched_processors": _insert(logits_processors=[[], [], []]),
    "mismatched_prompt_kwargs": _insert(prompt_kwargs=[{"inputs_embeds": mx.zeros((1, 3, 8))}]),
    "mismatched_embeddings": _insert(
        prompt_kwargs=[{"inputs_embeds": mx.zeros((1, n, 8))} for n in (3, 7)]
    ),
    "empty_prompt": _insert((3, 0)),
    "zero_max_tokens": _insert(max_tokens=[4, 0]),
    "negative_max_tokens": _insert(max_tokens=[4, -1]),
    "unknown_uid": lambda generator: _refused(generator.remove(_UNKNOWN_UID)),
    "unknown_kv_scheme": _construct(kv_bits=8, kv_quant_scheme="no such scheme"),
    "zero_completion_batch": _construct(completion_batch_size=0, prefill_batch_size=0),
    "negative_prefill_batch": _construct(prefill_batch_size=-1),
    "zero_prefill_step": _construct(prefill_step_size=0),
}


def probe(generator: Any, kind: str) -> ProbeResult:
    """Make the invalid call ``kind`` on a generator at work and compare its state around it."""
    before = compat.digest(generator)
    error = None
    try:
        PROBES[kind](generator)
    except Exception as raised:  # noqa: BLE001 - whatever it raises is the result
        error = f"{type(raised).__name__}: {raised}"
    after = compat.digest(generator)
    changed = tuple(
        f"{name}: {before[name]} became {after[name]}"
        for name in before
        if before[name] != after[name]
    )
    return ProbeResult(kind, error, changed)


def _refused(answer: object) -> None:
    """``remove`` says by its return value whether it knew the uid."""
    if answer is False:
        raise LookupError("remove returned False")
