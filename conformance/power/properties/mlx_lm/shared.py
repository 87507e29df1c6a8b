"""Properties that mlx-lm shares with the other library; each part is imported by itself."""

from __future__ import annotations

from importlib import import_module

from conformance.backend import attention_properties as attention
from conformance.backend import processor_properties as processors
from conformance.backend import rotation_properties as rotations
from conformance.backend import sampler_properties as samplers
from conformance.backend import scan_properties as scans
from conformance.core.properties import Property


def attention_properties() -> list[Property]:
    """Masks and attention."""
    return attention.attention_properties(
        import_module("mlx_lm.models.base"), import_module("mlx_lm.models.base")
    )


def delta_rule_properties() -> list[Property]:
    """The gated delta rule."""
    return scans.delta_rule_properties(import_module("mlx_lm.models.gated_delta"))


def processor_properties() -> list[Property]:
    """Logits processors."""
    return processors.processor_properties(import_module("mlx_lm.sample_utils"))


def rotation_properties() -> list[Property]:
    """Rotary positions."""
    return rotations.rotation_properties(import_module("mlx_lm.models.rope_utils"))


def sampler_properties() -> list[Property]:
    """Samplers."""
    return samplers.sampler_properties(import_module("mlx_lm.sample_utils"))


def state_space_properties() -> list[Property]:
    """Scans of state spaces."""
    return scans.state_space_properties(import_module("mlx_lm.models.ssm"))
