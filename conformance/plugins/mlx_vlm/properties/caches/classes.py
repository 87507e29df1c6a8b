"""The properties of mlx-vlm's cache classes, by what they are about."""

from __future__ import annotations

from conformance.core.properties import Property
from conformance.plugins.mlx_vlm.properties.caches.batches import cache_batch_properties
from conformance.plugins.mlx_vlm.properties.caches.blocks import cache_block_properties
from conformance.plugins.mlx_vlm.properties.caches.kept import cache_kept_properties
from conformance.plugins.mlx_vlm.properties.caches.pools import cache_pool_properties
from conformance.plugins.mlx_vlm.properties.caches.pools_kept import cache_pool_kept_properties
from conformance.plugins.mlx_vlm.properties.caches.streams import cache_stream_properties
from conformance.plugins.mlx_vlm.properties.caches.windows import cache_window_properties


def cache_properties() -> list[Property]:
    """All of them."""
    return [
        *cache_batch_properties(),
        *cache_block_properties(),
        *cache_kept_properties(),
        *cache_pool_properties(),
        *cache_pool_kept_properties(),
        *cache_stream_properties(),
        *cache_window_properties(),
    ]
