"""Properties of mlx-vlm's functions that need no model.

What batches of a model give is played by the scenarios, what caches hold by ``tools/caches``.
"""

from __future__ import annotations

from mlx_vlm import sample_utils

from conformance.backend.attention_properties import attention_properties
from conformance.backend.processor_properties import processor_properties
from conformance.backend.rotation_properties import rotation_properties
from conformance.backend.sampler_properties import sampler_properties
from conformance.backend.scan_properties import scan_properties
from conformance.core.properties import Property
from conformance.plugins.mlx_vlm import compat
from conformance.plugins.mlx_vlm.properties import mrope
from conformance.plugins.mlx_vlm.properties.batches import batch_properties
from conformance.plugins.mlx_vlm.properties.budgets import budget_properties
from conformance.plugins.mlx_vlm.properties.cuts import cut_properties
from conformance.plugins.mlx_vlm.properties.draws import draw_properties
from conformance.plugins.mlx_vlm.properties.file_ends import file_end_properties
from conformance.plugins.mlx_vlm.properties.files import file_properties
from conformance.plugins.mlx_vlm.properties.formats import format_properties
from conformance.plugins.mlx_vlm.properties.generator_parts import generator_part_properties
from conformance.plugins.mlx_vlm.properties.generators import generator_properties
from conformance.plugins.mlx_vlm.properties.kept_rows import kept_row_properties
from conformance.plugins.mlx_vlm.properties.keys import key_properties
from conformance.plugins.mlx_vlm.properties.lookups import lookup_properties
from conformance.plugins.mlx_vlm.properties.memory import memory_properties
from conformance.plugins.mlx_vlm.properties.memory_bounds import memory_bound_properties
from conformance.plugins.mlx_vlm.properties.mrope import mrope_properties
from conformance.plugins.mlx_vlm.properties.pool import pool_properties
from conformance.plugins.mlx_vlm.properties.quantization import quantization_properties
from conformance.plugins.mlx_vlm.properties.rounds import round_properties
from conformance.plugins.mlx_vlm.properties.row_caches import row_cache_properties
from conformance.plugins.mlx_vlm.properties.rows import row_properties
from conformance.plugins.mlx_vlm.properties.settings import setting_properties


def properties() -> list[Property]:
    """All of them."""
    return [
        *attention_properties(compat.part("models.base"), compat.part("models.cache")),
        *batch_properties(),
        *budget_properties(),
        *cut_properties(),
        *draw_properties(),
        *file_end_properties(),
        *file_properties(),
        *format_properties(),
        *generator_properties(),
        *generator_part_properties(),
        *kept_row_properties(),
        *key_properties(),
        *lookup_properties(),
        *memory_properties(),
        *memory_bound_properties(),
        *mrope_properties(),
        *pool_properties(),
        *processor_properties(sample_utils),
        *quantization_properties(),
        *round_properties(),
        *row_cache_properties(),
        *rotation_properties(mrope.rope),
        *row_properties(),
        *scan_properties(compat.part("models.ssm"), compat.part("models.gated_delta")),
        *setting_properties(),
        *sampler_properties(sample_utils),
    ]
