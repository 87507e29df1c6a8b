"""Properties of mlx-lm's functions that need no model."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from mlx_lm import sample_utils
from mlx_lm.models import base, cache, gated_delta, rope_utils, ssm

from conformance.backend.attention_properties import attention_properties
from conformance.backend.processor_properties import processor_properties
from conformance.backend.rotation_properties import rotation_properties
from conformance.backend.sampler_properties import sampler_properties
from conformance.backend.scan_properties import scan_properties
from conformance.core.properties import Property
from conformance.plugins.mlx_lm.generator_properties import generator_properties

_CACHES = "mlx_lm/models/cache.py"


def properties() -> list[Property]:
    """All of them."""
    stores = ("LRUPromptCache.*", "PromptTrie.*")
    return [
        Property("kept: the longest prefix", _CACHES, stores, partial(_kept, (2,), (3,), (2, 3))),
        Property("kept: a prefix of one token", _CACHES, stores, partial(_kept, (1,))),
        *attention_properties(base, base),
        *generator_properties(),
        *processor_properties(sample_utils),
        *rotation_properties(rope_utils),
        *sampler_properties(sample_utils),
        *scan_properties(ssm, gated_delta),
    ]


def _kept(*cases: tuple[int, ...]) -> Iterator[str]:
    """A prompt takes the longest of the kept prefixes that can't be cut, and computes the rest."""
    tokens = [5, 6, 7, 8]
    for counts in cases:
        store = cache.LRUPromptCache()
        for count in counts:
            store.insert_cache("model", tokens[:count], [cache.ArraysCache(count)])
        found, rest = store.fetch_nearest_cache("model", tokens)
        got = len(found[0].cache) if found else 0
        if (got, rest) != (counts[-1], tokens[counts[-1] :]):
            yield f"of {counts} tokens kept those of {got} are found, {rest} are left"
