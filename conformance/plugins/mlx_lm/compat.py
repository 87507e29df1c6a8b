"""All differences between mlx-lm releases in the batch generator.

Covers 0.28.0 to the newest. The generator was rewritten in 0.31.2; ``legacy`` adapts the earlier
one. The form in which stop sequences are passed is looked up at run time.
"""

from __future__ import annotations

import importlib
import inspect
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import mlx.core as mx
from mlx_lm.generate import BatchGenerator

from conformance.backend.cache_entries import arrays, leaves
from conformance.backend.recorded_sampler import RecordedSampler
from conformance.backend.sampling import ProcessorFn
from conformance.core.engine_options import EngineOptions
from conformance.core.errors import Unsupported
from conformance.core.schedule import Stage
from conformance.plugins.mlx_lm import legacy
from conformance.plugins.mlx_lm.legacy import WholePromptGenerator


def prefills_in_pieces() -> bool:
    """Whether this release has the generator that was rewritten in 0.31.2."""
    return hasattr(BatchGenerator, "insert_segments")


def samples_rows() -> bool:
    """Whether requests can have samplers of their own, which force tokens: from 0.30.2 on."""
    return "samplers" in inspect.signature(BatchGenerator.insert).parameters


def make_generator(
    model: Any,
    options: EngineOptions,
    sampler: RecordedSampler | None = None,
    processors: Sequence[ProcessorFn] = (),
) -> Any:
    """The library's batch generator with ``options``; by default without stop tokens.

    Args:
        sampler: that of ``options``.
        processors: those of ``options``.

    Raises:
        Unsupported: this release takes stop tokens, but no sequences.
    """
    make: type[Any] = BatchGenerator if prefills_in_pieces() else WholePromptGenerator
    return make(
        model,
        completion_batch_size=options.completion_batch_size,
        prefill_batch_size=options.prefill_batch_size,
        prefill_step_size=options.prefill_step_size,
        max_kv_size=options.max_kv_size,
        **({"max_tokens": options.max_tokens} if options.max_tokens else {}),
        **_stop_tokens(options),
        **defaults(sampler, processors),
    )


def _stop_tokens(options: EngineOptions) -> dict[str, Any]:
    if not options.stop:
        return {}
    if prefills_in_pieces():
        return {"stop_tokens": [list(sequence) for sequence in options.stop]}
    if any(len(sequence) > 1 for sequence in options.stop):
        raise Unsupported("this mlx-lm's BatchGenerator takes stop tokens, not sequences")
    return {"stop_tokens": {token for (token,) in options.stop}}


def defaults(sampler: RecordedSampler | None, processors: Sequence[ProcessorFn]) -> dict[str, Any]:
    """The generator's arguments for rows without a sampler or processors of their own."""
    made: dict[str, Any] = {"sampler": sampler} if sampler is not None else {}
    return made | ({"logits_processors": list(processors)} if processors else {})


def processors_argument(rows: Sequence[Sequence[ProcessorFn]]) -> list[Any]:
    """The processors of each row for ``insert``; ``None`` for none, if the release takes it."""
    module = importlib.import_module("mlx_lm.generate")
    none: Any = None if hasattr(module, "_normalize_logits_processors") else []
    return [list(row) or none for row in rows]


def stop_argument(
    stops: Sequence[tuple[tuple[int, ...], ...]], kept: dict[tuple[tuple[int, ...], ...], Any]
) -> dict[str, Any]:
    """The keyword argument of ``insert`` for one tuple of stop sequences a request.

    Args:
        kept: what was made for earlier requests; equal tuples share it, as in the library's server.

    Raises:
        Unsupported: this release takes stop sequences in an unknown form.
    """
    if not any(stops):
        return {}
    taken = inspect.signature(BatchGenerator.insert).parameters
    if "stop_sequences" in taken:
        # `mlx_lm.generate` as an attribute is the function of that name.
        make = importlib.import_module("mlx_lm.generate").StopSequences
        kept |= {stop: make(list(map(_plain, stop))) for stop in set(stops) - kept.keys()}
        return {"stop_sequences": [kept[stop] for stop in stops]}
    if "state_machines" in taken:
        return legacy.state_machines(stops)
    raise Unsupported(
        "this mlx-lm's BatchGenerator does not support stop sequences of a request's own"
    )


def _plain(sequence: tuple[int, ...]) -> list[int] | int:
    """A sequence of one token becomes the token itself, as some callers write it."""
    return sequence[0] if len(sequence) == 1 else list(sequence)


def prompt_caches() -> Any:
    """The class in which the server keeps the caches of earlier prompts."""
    cache = importlib.import_module("mlx_lm.models.cache")
    return getattr(cache, "LRUPromptCache", None) or legacy.prompt_cache_class()


def reloaded(caches: Any) -> Any:
    """The caches of a sequence, one a layer, after ``save_prompt_cache`` and its counterpart."""
    cache = importlib.import_module("mlx_lm.models.cache")
    with tempfile.TemporaryDirectory(prefix="conformance-") as folder:
        file = str(Path(folder) / "cache.safetensors")
        cache.save_prompt_cache(file, caches)
        loaded = cache.load_prompt_cache(file)
        # Arrays are read only when they are evaluated, which must be before the file is removed.
        mx.eval(list(arrays(loaded)))
    return loaded


def uids_by_stage(generator: Any) -> dict[int, Stage]:
    """The stage of each request in the generator, by the generator's uid."""
    stages = {entry[0]: Stage.QUEUED for entry in generator._unprocessed_sequences}
    stages |= dict.fromkeys(generator._prompt_batch.uids, Stage.PREFILL)
    stages |= dict.fromkeys(generator._generation_batch.uids, Stage.DECODE)
    return stages


def decode_rows(generator: Any) -> list[int]:
    """The uids of the decoding batch, in the order of its rows."""
    return list(generator._generation_batch.uids)


def decode_caches(generator: Any) -> list[Any]:
    """The caches of the decoding batch, one for each layer."""
    return list(generator._generation_batch.prompt_cache)


def live_caches(generator: Any) -> list[Any]:
    """All caches of the generator: queued, in prefill and in decode."""
    queued = [cache for entry in generator._unprocessed_sequences for cache in entry[3]]
    return [*queued, *generator._prompt_batch.prompt_cache, *decode_caches(generator)]


def histories(generator: Any) -> list[Any]:
    """The buffers of the decoding rows' tokens, for their logits processors."""
    return list(getattr(generator._generation_batch, "_token_context", ()))


def checkpoints(generator: Any) -> list[tuple[list[int], list[Any]]]:
    """See ``WholePromptGenerator``; later generators keep caches at the end of a piece."""
    return generator.checkpoints() if isinstance(generator, WholePromptGenerator) else []


def cache_bytes(generator: Any) -> int:
    """Bytes of all caches of the generator: queued, in prefill and in decode."""
    return int(generator.prompt_cache_nbytes)


def nbytes(cache: Any) -> int:
    """Bytes of a cache by its own count; 0 for an empty cache.

    Before 0.30.4 a cache does not report whether it is empty, and before 0.31 not its bytes.
    """
    return sum(_own_bytes(leaf) for leaf in leaves([cache]) if not holds_nothing(leaf))


def _own_bytes(leaf: Any) -> int:
    own = getattr(leaf, "nbytes", None)
    held = (int(array.nbytes) for array in arrays(leaf) if array.ndim > 1)
    return int(own) if own is not None else sum(held)


def holds_nothing(leaf: Any) -> bool:
    """Whether a cache reports that it is empty; before 0.30.4, whether it has no array of rows."""
    if hasattr(leaf, "empty"):
        return bool(leaf.empty())
    return not any(array.ndim > 1 for array in arrays(leaf))


def digest(generator: Any) -> dict[str, Any]:
    """All bookkeeping that an invalid call could change, as plain values to compare."""
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
        [len(batch.samplers), len(batch.logits_processors), len(_ends(batch))],
    ]


def _ends(batch: Any) -> Any:
    """What ends each row of a batch: stop sequences, or state machines up to 0.31.3."""
    return batch.stop_sequences if hasattr(batch, "stop_sequences") else batch.state_machines
