"""Facts about a model that the user has loaded."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import mlx.core as mx
from mlx.nn.layers.base import Module
from mlx.utils import tree_flatten

from conformance.core.errors import ModelError

_DTYPES = {mx.float32: "float32", mx.float16: "float16", mx.bfloat16: "bfloat16"}


def is_module(value: object) -> bool:
    """Whether it is a model in memory, and not the name or path of one."""
    return isinstance(value, Module)


def working_dtype(model: Any) -> str:
    """The dtype of most of its floating parameters, by number."""
    flat: dict[str, mx.array] = dict(tree_flatten(model.parameters()))
    found = Counter(_DTYPES[v.dtype] for v in flat.values() if v.dtype in _DTYPES)
    return found.most_common(1)[0][0] if found else "float32"


def config_of(model: Any) -> Mapping[str, Any]:
    """The fields of its ``args`` or ``config``, including ``model_type`` and ``vocab_size``.

    Raises:
        ModelError: it has no vocabulary size, and does not return logits for one token either.
    """
    settings = getattr(model, "args", None) or getattr(model, "config", None)
    config = {**getattr(settings, "__dict__", {})}
    config.setdefault("model_type", type(model).__module__.rpartition(".")[2])
    if not isinstance(config.get("vocab_size"), int):
        try:
            config["vocab_size"] = int(model(mx.array([[0]])).shape[-1])
        except Exception as error:
            raise ModelError(
                f"{type(model).__name__}: names no vocab_size, and a call with one token raised "
                f"{type(error).__name__}: {error}"
            ) from error
    return config
