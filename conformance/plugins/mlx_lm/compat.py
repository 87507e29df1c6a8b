"""What differs between mlx-lm releases in the batch generator. All such knowledge lives here.

Covered: 0.32.0 to the newest. Two names are looked up at run time instead of assumed: how stop
sequences are passed, and how a generator tells the bytes that its caches hold.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Sequence
from typing import Any

from mlx_lm.generate import BatchGenerator

from conformance.errors import Unsupported
from conformance.schedule import EngineOptions, Stage


def make_generator(model: Any, options: EngineOptions) -> BatchGenerator:
    """The library's batch generator with the sizes of ``options`` and no default stop tokens."""
    return BatchGenerator(
        model,
        completion_batch_size=options.completion_batch_size,
        prefill_batch_size=options.prefill_batch_size,
        prefill_step_size=options.prefill_step_size,
        max_kv_size=options.max_kv_size,
    )


def stop_argument(stops: Sequence[tuple[tuple[int, ...], ...]]) -> dict[str, Any]:
    """The keyword argument of ``insert`` for one tuple of stop sequences a request.

    Raises:
        Unsupported: this release takes stop sequences in a form that is not known here.
    """
    if not any(stops):
        return {}
    if "stop_sequences" in inspect.signature(BatchGenerator.insert).parameters:
        # `mlx_lm.generate` as an attribute is the function of that name.
        make = importlib.import_module("mlx_lm.generate").StopSequences
        return {"stop_sequences": [make([list(s) for s in stop]) for stop in stops]}
    raise Unsupported("this mlx-lm's BatchGenerator.insert takes no stop_sequences")


def uids_by_stage(generator: BatchGenerator) -> dict[int, Stage]:
    """Where each request is that the generator still holds, by the generator's uid."""
    held = {entry[0]: Stage.QUEUED for entry in generator._unprocessed_sequences}
    held |= dict.fromkeys(generator._prompt_batch.uids, Stage.PREFILL)
    held |= dict.fromkeys(generator._generation_batch.uids, Stage.DECODE)
    return held


def decode_rows(generator: BatchGenerator) -> list[int]:
    """The uids of the decoding batch, in the order of its rows."""
    return list(generator._generation_batch.uids)


def decode_caches(generator: BatchGenerator) -> list[Any]:
    """The caches of the decoding batch, one for each layer."""
    return list(generator._generation_batch.prompt_cache)


def cache_bytes(generator: BatchGenerator) -> int:
    """Bytes of all caches that the generator holds: queued, in prefill and in decode."""
    return int(generator.prompt_cache_nbytes)


def digest(generator: BatchGenerator) -> dict[str, Any]:
    """All bookkeeping that an invalid call could disturb, as plain values to compare."""
    prompt, generation = generator._prompt_batch, generator._generation_batch
    return {
        "uid counter": generator._uid_count,
        "queue": [entry[0] for entry in generator._unprocessed_sequences],
        "prompts in work": [
            [[list(s) for s in e[0]], e[1], e[2]] for e in generator._currently_processing
        ],
        "prefill batch": _batch_digest(prompt),
        "decode batch": _batch_digest(generation),
        "tokens produced": list(generation._num_tokens),
        "cache bytes": cache_bytes(generator),
    }


def _batch_digest(batch: Any) -> list[Any]:
    return [
        list(batch.uids),
        [list(tokens) for tokens in batch.tokens],
        list(batch.max_tokens),
        [len(batch.samplers), len(batch.logits_processors), len(batch.stop_sequences)],
    ]
