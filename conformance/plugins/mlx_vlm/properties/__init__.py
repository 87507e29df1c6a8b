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
from conformance.plugins.mlx_vlm.properties.caches.classes import cache_properties
from conformance.plugins.mlx_vlm.properties.generator.batches import batch_properties
from conformance.plugins.mlx_vlm.properties.generator.draws import draw_properties
from conformance.plugins.mlx_vlm.properties.generator.generator_parts import (
    generator_part_properties,
)
from conformance.plugins.mlx_vlm.properties.generator.generators import generator_properties
from conformance.plugins.mlx_vlm.properties.generator.kept_rows import kept_row_properties
from conformance.plugins.mlx_vlm.properties.generator.rounds import round_properties
from conformance.plugins.mlx_vlm.properties.generator.row_caches import row_cache_properties
from conformance.plugins.mlx_vlm.properties.generator.rows import row_properties
from conformance.plugins.mlx_vlm.properties.generator.steps_batches import batch_setting_properties
from conformance.plugins.mlx_vlm.properties.generator.steps_drafts import draft_properties
from conformance.plugins.mlx_vlm.properties.generator.steps_failures import failure_properties
from conformance.plugins.mlx_vlm.properties.generator.steps_made import made_properties
from conformance.plugins.mlx_vlm.properties.generator.steps_penalties import penalty_properties
from conformance.plugins.mlx_vlm.properties.generator.steps_pieces import piece_properties
from conformance.plugins.mlx_vlm.properties.generator.steps_rows import joining_properties
from conformance.plugins.mlx_vlm.properties.models import mrope
from conformance.plugins.mlx_vlm.properties.models.delta_kernels import kernel_properties
from conformance.plugins.mlx_vlm.properties.models.mrope import mrope_properties
from conformance.plugins.mlx_vlm.properties.models.sparse import sparse_properties
from conformance.plugins.mlx_vlm.properties.prefix_store.adapter_entries import (
    adapter_entry_properties,
)
from conformance.plugins.mlx_vlm.properties.prefix_store.adapter_kinds import (
    adapter_kind_properties,
)
from conformance.plugins.mlx_vlm.properties.prefix_store.adapter_rows import adapter_row_properties
from conformance.plugins.mlx_vlm.properties.prefix_store.batches import store_batch_properties
from conformance.plugins.mlx_vlm.properties.prefix_store.blocks import store_block_properties
from conformance.plugins.mlx_vlm.properties.prefix_store.bounds import store_bound_properties
from conformance.plugins.mlx_vlm.properties.prefix_store.budgets import budget_properties
from conformance.plugins.mlx_vlm.properties.prefix_store.cuts import cut_properties
from conformance.plugins.mlx_vlm.properties.prefix_store.entries import store_entry_properties
from conformance.plugins.mlx_vlm.properties.prefix_store.file_ends import file_end_properties
from conformance.plugins.mlx_vlm.properties.prefix_store.files import file_properties
from conformance.plugins.mlx_vlm.properties.prefix_store.formats import format_properties
from conformance.plugins.mlx_vlm.properties.prefix_store.keys import key_properties
from conformance.plugins.mlx_vlm.properties.prefix_store.lookups import lookup_properties
from conformance.plugins.mlx_vlm.properties.prefix_store.memory import memory_properties
from conformance.plugins.mlx_vlm.properties.prefix_store.memory_bounds import (
    memory_bound_properties,
)
from conformance.plugins.mlx_vlm.properties.prefix_store.pool import pool_properties
from conformance.plugins.mlx_vlm.properties.prefix_store.room import store_room_properties
from conformance.plugins.mlx_vlm.properties.prefix_store.upkeep import store_upkeep_properties
from conformance.plugins.mlx_vlm.properties.quantization.codecs import codec_properties
from conformance.plugins.mlx_vlm.properties.quantization.policies import quantization_properties
from conformance.plugins.mlx_vlm.properties.quantization.turbo_attention import (
    turbo_attention_properties,
)
from conformance.plugins.mlx_vlm.properties.quantization.turbo_batches import turbo_batch_properties
from conformance.plugins.mlx_vlm.properties.quantization.turbo_caches import turbo_cache_properties
from conformance.plugins.mlx_vlm.properties.quantization.turbo_mixed import turbo_mixed_properties
from conformance.plugins.mlx_vlm.properties.quantization.turbo_states import state_properties
from conformance.plugins.mlx_vlm.properties.settings import setting_properties


def properties() -> list[Property]:
    """All of them."""
    return [
        *adapter_entry_properties(),
        *adapter_kind_properties(),
        *adapter_row_properties(),
        *store_batch_properties(),
        *store_block_properties(),
        *store_bound_properties(),
        *store_entry_properties(),
        *store_room_properties(),
        *store_upkeep_properties(),
        *attention_properties(compat.part("models.base"), compat.part("models.cache")),
        *batch_properties(),
        *budget_properties(),
        *codec_properties(),
        *cache_properties(),
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
        *state_properties(),
        *turbo_attention_properties(),
        *turbo_batch_properties(),
        *turbo_cache_properties(),
        *turbo_mixed_properties(),
        *sampler_properties(sample_utils),
        *sparse_properties(),
        *batch_setting_properties(),
        *draft_properties(),
        *failure_properties(),
        *joining_properties(),
        *kernel_properties(),
        *made_properties(),
        *penalty_properties(),
        *piece_properties(),
    ]
