"""Models of other families beside the server's own; a model's caches: size, quantized streams."""

from __future__ import annotations

from pathlib import Path

import mlx.core as mx
from mlx_lm.generate import generate_step
from mlx_lm.models.cache import make_prompt_cache

from conformance.core.engine_options import EngineOptions
from conformance.core.family import load_families
from conformance.core.library import Library
from conformance.core.origin import Origin, Other
from conformance.core.schedule import Request


def another(library: Library, families: Path, name: str, origin: Origin) -> Other:
    """The model of the family with this name, in the dtype and with the seed of ``origin``.

    Args:
        families: the folder of the library's family files.
    """
    (family,) = (one for one in load_families(families) if one.name == name)

    def write(folder: Path) -> None:
        library.write(family, folder, dtype=origin.dtype, seed=origin.seed)

    def alone(request: Request, options: EngineOptions) -> tuple[int, ...]:
        model = library.load(family, dtype=origin.dtype, seed=origin.seed)
        found = library.single_stream(model, request, options=options, steps=request.max_tokens)
        return found.stream.tokens

    return Other(write, alone)


def nbytes_of(origin: Origin, count: int) -> int:
    """Bytes of the caches of a model of mlx-lm that has read so many tokens."""
    low, _ = origin.family.tokens
    caches, before = make_prompt_cache(origin.model), len(origin.meter)
    mx.eval(origin.model(mx.array([[low] * count]), cache=caches))
    del origin.meter[before:]  # it is no work of the engine
    return sum(int(cache.nbytes) for cache in caches)


def quantized_stream(origin: Origin, request: Request, options: EngineOptions) -> tuple[int, ...]:
    """mlx-lm's own single stream with quantized keys and values.

    It quantizes a prompt's first piece only after reading it, unlike the streams of other engines.
    """
    assert options.kv is not None
    before = len(origin.meter)
    stream = generate_step(
        mx.array(request.prompt),
        origin.model,
        max_tokens=request.max_tokens,
        prefill_step_size=options.prefill_step_size,
        kv_bits=int(options.kv.bits),
        kv_group_size=options.kv.group_size,
        quantized_kv_start=options.kv.start,
    )
    tokens = tuple(int(token) for token, _ in stream)
    del origin.meter[before:]  # it is no work of the engine
    return tokens
