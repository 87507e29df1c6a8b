"""Properties of mlx-lm's functions that need no model.

What batches of a model give is played by the scenarios, what caches hold by ``tools/caches``.
"""

from __future__ import annotations

from mlx_lm import sample_utils
from mlx_lm.models import base, gated_delta, rope_utils, ssm

from conformance.backend.attention_properties import attention_properties
from conformance.backend.processor_properties import processor_properties
from conformance.backend.rotation_properties import rotation_properties
from conformance.backend.sampler_properties import sampler_properties
from conformance.backend.scan_properties import scan_properties
from conformance.core.properties import Property
from conformance.plugins.mlx_lm.properties.caches import cache_properties
from conformance.plugins.mlx_lm.properties.generators import generator_properties
from conformance.plugins.mlx_lm.properties.kept import kept_properties
from conformance.plugins.mlx_lm.properties.steps import step_properties


def properties() -> list[Property]:
    """All of them."""
    return [
        *attention_properties(base, base),
        *cache_properties(),
        *generator_properties(),
        *kept_properties(),
        *processor_properties(sample_utils),
        *rotation_properties(rope_utils),
        *sampler_properties(sample_utils),
        *scan_properties(ssm, gated_delta),
        *step_properties(),
    ]
