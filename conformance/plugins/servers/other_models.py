"""Models of other families beside the server's own, and the size of a model's caches."""

from __future__ import annotations

from pathlib import Path

import mlx.core as mx
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
