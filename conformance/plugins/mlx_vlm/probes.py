"""Invalid calls of ``BatchGenerator``: each must raise a clear error and change nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import mlx.core as mx

from conformance.core.invalid_call import watched
from conformance.core.trace import ProbeResult
from conformance.plugins.mlx_vlm import compat
from conformance.plugins.mlx_vlm.inputs import embed, inputs_of, plain_request
from conformance.plugins.mlx_vlm.model import LoadedModel

_UNKNOWN_UID = 1_000_003


def _insert(
    lengths: tuple[int, ...] = (3, 2), embedded: tuple[int, ...] = (), **options: Any
) -> Callable[[Any, LoadedModel], object]:
    """A call of ``insert`` with prompts of these lengths, each with its embeddings by default."""

    def call(generator: Any, loaded: LoadedModel) -> object:
        prompts = [_prompt(loaded, n)[0] for n in lengths]
        kwargs = [_prompt(loaded, n)[1] for n in embedded or lengths]
        return generator.insert(prompts, **{"max_tokens": 2, "prompt_kwargs": kwargs, **options})

    return call


def _prompt(loaded: LoadedModel, length: int) -> tuple[list[int], dict[str, Any]]:
    """``length`` tokens of text and the server's arguments for them, which are empty for 0."""
    low, _ = loaded.family.tokens
    request = plain_request(loaded, tuple(range(low, low + max(length, 1))), 1)
    given = embed(loaded, inputs_of(loaded, request))
    if length:
        return list(request.prompt), given
    empty = {n: v[:, :0] for n, v in given.items() if isinstance(v, mx.array) and v.ndim > 1}
    return [], {**given, **empty}


def _construct(**options: Any) -> Callable[[Any, LoadedModel], object]:
    return lambda generator, _: compat.generation().BatchGenerator(
        generator.model, generator.processor, **options
    )


def _remove(generator: Any, _: LoadedModel) -> None:
    """Raise if ``remove`` returns that it does not know the uid."""
    if generator.remove(_UNKNOWN_UID) is False:
        raise KeyError("remove returned False")


PROBES: Mapping[str, Callable[[Any, LoadedModel], object]] = {
    "mismatched_max_tokens": _insert(max_tokens=[4]),
    "mismatched_processors": _insert(logits_processors=[[], [], []]),
    "mismatched_prompt_kwargs": _insert(embedded=(3,)),
    "mismatched_embeddings": _insert(embedded=(3, 7)),
    "empty_prompt": _insert((3, 0)),
    "zero_max_tokens": _insert(max_tokens=[4, 0]),
    "negative_max_tokens": _insert(max_tokens=[4, -1]),
    "unknown_uid": _remove,
    "unknown_kv_scheme": _construct(kv_bits=8, kv_quant_scheme="no such scheme"),
    "zero_completion_batch": _construct(completion_batch_size=0, prefill_batch_size=0),
    "negative_prefill_batch": _construct(prefill_batch_size=-1),
    "negative_prefill_step": _construct(prefill_step_size=-1),
}


def probe(generator: Any, loaded: LoadedModel, kind: str) -> ProbeResult:
    """Make the invalid call ``kind`` on a working generator; the result has what it changed."""
    return watched(kind, lambda: PROBES[kind](generator, loaded), lambda: compat.digest(generator))
