"""All differences between mlx-vlm releases in the batch generator.

Covers 0.4.4 to the newest. Up to 0.5 all of generation was one module, ``mlx_vlm.generate``; from
0.6 on the autoregressive part is ``mlx_vlm.generate.ar``. The generator was rewritten in 0.5;
``legacy`` adapts the earlier one. An argument that a release does not take is omitted if the
release behaves the same without it, and refused otherwise.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import mlx.core as mx
from mlx.utils import tree_flatten
from mlx_vlm import utils

from conformance.core.engine_options import EngineOptions, KvQuant
from conformance.core.errors import Unsupported
from conformance.core.library_source import older
from conformance.core.schedule import Stage
from conformance.plugins.mlx_vlm import legacy
from conformance.plugins.mlx_vlm.legacy import WholePromptGenerator


def generation() -> ModuleType:
    """The module of ``generate_step`` and ``BatchGenerator``."""
    # `mlx_vlm.generate` as an attribute may be the function of that name.
    for name in ("mlx_vlm.generate.ar", "mlx_vlm.generate"):
        try:
            module = importlib.import_module(name)
        except ModuleNotFoundError:
            continue
        if hasattr(module, "BatchGenerator"):
            return module
    raise Unsupported("this mlx-vlm has no BatchGenerator")


def part(name: str) -> ModuleType:
    """The module ``mlx_vlm.<name>``.

    Raises:
        Unsupported: this release has no such module.
    """
    try:
        return importlib.import_module(f"mlx_vlm.{name}")
    except ModuleNotFoundError as error:
        raise Unsupported(f"this mlx-vlm does not support it: {error}") from error


def processor_maker() -> Any:
    """The library's function that makes logits processors; up to 0.5, mlx-lm's."""
    own = part("sample_utils")
    if hasattr(own, "make_logits_processors"):
        return own.make_logits_processors
    return legacy.logits_processor_maker()


def sampler_of(arguments: Mapping[str, float | int]) -> Any:
    """The sampler that the library's ``make_sampler`` makes with these arguments.

    Raises:
        Unsupported: this release has no such function, or it takes other arguments.
    """
    make = getattr(part("sample_utils"), "make_sampler", None)
    if make is None:
        raise Unsupported("this mlx-vlm does not support samplers made of arguments")
    _check(make, arguments, "make_sampler")
    return make(**arguments)


def model_package(config: dict[str, Any], folder: Path) -> Any:
    """The library's package for a config; ``model_file`` in it is read from ``folder``.

    Raises:
        Unsupported: this release has no such model of its own and uses mlx-lm's.
    """
    find = utils.get_model_and_args
    knows_files = "model_path" in inspect.signature(find).parameters
    package, _ = find(config=config, **({"model_path": folder} if knows_files else {}))
    if package.__name__.endswith(".text_only"):
        kind = config.get("model_type")
        raise Unsupported(f"this mlx-vlm does not support {kind} by a model of its own")
    return package


def embeds_together() -> bool:
    """Whether this release's generator takes the embeddings of a whole batch: up to 0.4."""
    return "prompt_kwargs" not in inspect.signature(generation().BatchGenerator.insert).parameters


def with_end_of_text(config: dict[str, Any]) -> dict[str, Any]:
    """A config that this release can load: 0.6.4 to 0.7 refuse a config without stop tokens.

    Any token will do, because engines and single streams get their own stop tokens. It must not be
    0, which those releases treat as missing.
    """
    if not older("mlx-vlm", "0.7.10"):
        return config
    return {**config, "eos_token_id": config.get("eos_token_id") or 1}


def reports_prefills() -> bool:
    """Whether ``next`` reports prefills that ended; up to 0.5 the list is documented as empty."""
    return not older("mlx-vlm", "0.6.0")


def unpads_together() -> bool:
    """Whether the padding of prompts embedded together is cut off before they are sorted.

    Before 0.7.0 the generator gets padded prompts of one length, so its sorting by length keeps
    their order.
    """
    return hasattr(generation(), "_unpad_batch_prompts")


def make_generator(model: Any, processor: Any, options: EngineOptions, **more: Any) -> Any:
    """The library's batch generator on a language model, with the sizes of ``options``.

    Raises:
        Unsupported: this release's generator does not take one of the options.
    """
    wanted = {
        "completion_batch_size": options.completion_batch_size,
        "prefill_batch_size": options.prefill_batch_size,
        "prefill_step_size": options.prefill_step_size,
        **kv_arguments(options.kv),
        **more,
    }
    if options.max_tokens and not embeds_together():
        wanted["max_tokens"] = options.max_tokens
    make: Any = WholePromptGenerator if embeds_together() else generation().BatchGenerator
    _check(make, wanted, "BatchGenerator")
    return make(model, processor, **wanted)


def kv_arguments(kv: KvQuant | None) -> dict[str, Any]:
    """The library's arguments for quantized keys and values; empty without quantization."""
    if kv is None:
        return {}
    bits = int(kv.bits) if float(kv.bits).is_integer() else kv.bits
    return {
        "kv_bits": bits,
        "kv_group_size": kv.group_size,
        "kv_quant_scheme": kv.scheme,
        "quantized_kv_start": kv.start,
    }


def make_batch_cache(model: Any, kv: KvQuant, prompt_length: int) -> list[Any]:
    """The batch generator's cache for one row; since 0.6 it takes a start."""
    make = generation()._make_cache
    given = {**kv_arguments(kv), "prefill_length": prompt_length}
    taken = inspect.signature(make).parameters
    made: list[Any] = make(model, [0], **{n: v for n, v in given.items() if n in taken})
    return made


def progress(generator: Any) -> dict[int, int]:
    """The prompt tokens fed so far of each request in prefill, by the generator's uid."""
    batch = generator._prompt_batch
    if batch is None:
        return {}
    done = batch._processed_prompt_columns
    rows = zip(batch.uids, batch._left_padding_per_row, batch._suffix_lens, strict=True)
    if batch._right_pad_per_row is not None:
        return {uid: min(length, done) for uid, _, length in rows}
    return {uid: min(length, max(0, done - left)) for uid, left, length in rows}


def reused(generator: Any, progress: Iterable[Any]) -> dict[int, int]:
    """Prompt tokens whose cache came from an earlier prompt, by uid.

    This covers prompts in prefill and prompts in ``progress``, whose prefill has just ended.
    """
    batch = generator._prompt_batch
    found = {p.uid: getattr(p, "cached_tokens", 0) for p in progress}
    if batch is not None:
        found |= dict(zip(batch.uids, getattr(batch, "_cached_tokens_per_row", ()), strict=False))
    return {uid: int(count) for uid, count in found.items() if count}


def uids_by_stage(generator: Any) -> dict[int, Stage]:
    """The stage of each request in the generator, by the generator's uid."""
    stages = {entry[0]: Stage.QUEUED for entry in generator._unprocessed_sequences}
    if generator._prompt_batch is not None:
        stages |= dict.fromkeys(generator._prompt_batch.uids, Stage.PREFILL)
    stages |= dict.fromkeys(generator._generation_batch.uids, Stage.DECODE)
    return stages


def decode_rows(generator: Any) -> list[int]:
    """The uids of the decoding batch, in the order of its rows."""
    return list(generator._generation_batch.uids)


def prefill_rows(generator: Any) -> list[int]:
    """The uids of the prompts in prefill, in the order of their rows."""
    return list(generator._prompt_batch.uids) if generator._prompt_batch is not None else []


def sampled_positions(generator: Any) -> list[int]:
    """The index of the output token that each row gets next, within a call of the sampler.

    A decode step begins by setting ``_current_tokens`` to ``_next_tokens``; else a prefill ends.
    """
    batch = generator._generation_batch
    if batch._next_tokens is not None and batch._current_tokens is batch._next_tokens:
        return [count + 1 for count in batch._num_tokens]
    return [0] * len(prefill_rows(generator))


def caches(generator: Any) -> list[Any]:
    """All caches of the generator: in prefill and in decode."""
    batches = [generator._generation_batch, generator._prompt_batch]
    return [cache for batch in batches if batch is not None for cache in batch.prompt_cache]


def decode_caches(generator: Any) -> list[Any]:
    """The caches of the decoding batch, by layer; empty without rows."""
    batch = generator._generation_batch
    return list(batch.prompt_cache) if batch.uids else []


def nbytes(cache: Any) -> int:
    """Bytes of a cache, by its own count or, if it has none, of all its arrays."""
    if hasattr(cache, "caches"):
        return sum(nbytes(one) for one in cache.caches)
    empty = getattr(cache, "empty", None)  # some models' own caches lack it
    if empty is not None and empty():
        return 0
    try:
        return int(cache.nbytes)
    except (AttributeError, NotImplementedError):
        entries: Any = tree_flatten(dict(vars(cache)))
        return sum(int(value.nbytes) for _, value in entries if isinstance(value, mx.array))


def _check(taker: Any, wanted: Mapping[str, Any], what: str) -> None:
    parameters = inspect.signature(taker).parameters
    unknown = [name for name in wanted if name not in parameters]
    if unknown:
        raise Unsupported(f"this mlx-vlm's {what} does not support {', '.join(unknown)}")


def digest(generator: Any) -> dict[str, Any]:
    """All bookkeeping that an invalid call could change, as plain values to compare."""
    prompt, batch = generator._prompt_batch, generator._generation_batch
    return {
        "uid counter": generator.uid_count,
        "queue": [
            (entry[0], list(entry[1]), entry[2]) for entry in generator._unprocessed_sequences
        ],
        "prefill batch": None if prompt is None else [list(prompt.uids), list(prompt.max_tokens)],
        "decode batch": [list(batch.uids), list(batch.max_tokens), list(batch._num_tokens)],
        "cache bytes": sum(nbytes(cache) for cache in caches(generator)),
    }
