"""falcon_ocr of the library with weights that are already in its own format.

The library's sanitize sorts the rows of ``w13`` each time (models/falcon_ocr/falcon_ocr.py), so
that a checkpoint that it has converted cannot be read back. Everything else is the library's own.
"""

from __future__ import annotations

import mlx.core as mx
from mlx_vlm.models.falcon_ocr import falcon_ocr
from mlx_vlm.models.falcon_ocr.config import ModelConfig, TextConfig, VisionConfig
from mlx_vlm.models.falcon_ocr.falcon_ocr import VisionModel
from mlx_vlm.models.falcon_ocr.language import LanguageModel

__all__ = ["LanguageModel", "Model", "ModelConfig", "TextConfig", "VisionConfig", "VisionModel"]


class Model(falcon_ocr.Model):
    """The library's, but for the order of rows; its tables of angles are made, not read."""

    def sanitize(self, weights: dict[str, mx.array]) -> dict[str, mx.array]:
        """The weights, with the tables."""
        inner = self.language_model.model
        tables = {"cos_1d": inner.cos_1d, "sin_1d": inner.sin_1d}
        return weights | {f"language_model.model.{name}": t for name, t in tables.items()}
