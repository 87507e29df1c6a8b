"""Single-stream caches quantized as the batch generator quantizes its own.

``generate_step(kv_bits=...)`` follows another policy (it quantizes every layer, once a cache has
passed the start, after each chunk), so its stream is no oracle for a quantized batch; see
``policy_stream`` for holding the two against each other.
"""

from __future__ import annotations

from typing import Any

from mlx_vlm.models import cache as caches

from conformance.errors import Unsupported
from conformance.schedule import KvQuant


def make_cache(model: Any, kv: KvQuant, prompt_length: int) -> list[Any]:
    """A cache for one row with the layers quantized that the batch generator quantizes."""
    raise Unsupported(f"quantized caches {kv} for {type(model).__name__}, {prompt_length}")
