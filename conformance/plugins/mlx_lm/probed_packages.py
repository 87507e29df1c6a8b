"""Packages that a model module only looks for, without using them.

``mlx_lm/models/olmo.py:13`` imports ``hf_olmo`` to see whether it is there, and ends the process
if it is not. No environment with mlx-vlm can have it: ai2-olmo from 0.6.0 on needs numpy below 2,
and opencv-python, which mlx-vlm needs, numpy 2; before that it needs torch below 2.4, with which
transformers 5 has no models, and ``hf_olmo`` is one; cached-path, which all of them need, needs
rich below 14.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import sys
from collections.abc import Iterator
from types import ModuleType

# By the model's module.
_LOOKED_FOR = {"olmo": "hf_olmo"}


@contextlib.contextmanager
def found(model_type: str) -> Iterator[None]:
    """Import the model's module while an empty module replaces the package that it looks for.

    Outside of the block the package is missing as before; an installed package is left alone. A
    model that used anything of the empty module would fail.
    """
    package = _LOOKED_FOR.get(model_type)
    if package is None or importlib.util.find_spec(package) is not None:
        yield
        return
    sys.modules[package] = ModuleType(package)
    try:
        importlib.import_module(f"mlx_lm.models.{model_type}")
        yield
    finally:
        del sys.modules[package]
