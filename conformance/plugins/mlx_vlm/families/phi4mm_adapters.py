"""phi4mm of the library from a checkpoint that holds adapters for images and for sounds.

The released checkpoint has both beside the base weights, in its own names. Here the tiny one is
given them when it is read: those for images are zero, as they are merged at once and the weights
must stay as written; those for sounds are not.
"""

from __future__ import annotations

from typing import Any

import mlx.core as mx
from mlx_vlm.models.phi4mm import phi4mm
from mlx_vlm.models.phi4mm.config import AudioConfig, ModelConfig, TextConfig, VisionConfig
from mlx_vlm.models.phi4mm.language import LanguageModel
from mlx_vlm.models.phi4mm.vision import VisionTower as VisionModel

__all__ = [
    "AudioConfig",
    "LanguageModel",
    "Model",
    "ModelConfig",
    "TextConfig",
    "VisionConfig",
    "VisionModel",
]

_PREFIX = "language_model."
_RANK = 4


class Model(phi4mm.Model):
    """The library's, with adapters added to each projection of its language model."""

    def sanitize(self, weights: dict[str, mx.array]) -> dict[str, mx.array]:
        """As the library's, of a checkpoint with adapters."""
        given: dict[str, mx.array] = {}
        for name, value in weights.items():
            if not (name.startswith(_PREFIX) and name.endswith("_proj.weight")):
                given[name] = value
                continue
            stem = name.removeprefix(_PREFIX).removesuffix(".weight")
            given[f"{stem}.base_layer.weight"] = value
            for kind in ("vision", "speech"):
                given[f"{stem}.lora_A.{kind}.weight"] = value[:_RANK]
                scale = 0.5 if kind == "speech" else 0.0
                given[f"{stem}.lora_B.{kind}.weight"] = scale * value[:, :_RANK]
        library: Any = super()
        sanitized: dict[str, mx.array] = library.sanitize(given)
        return sanitized
