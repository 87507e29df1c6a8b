"""Modules of a loaded model: facts about it, and a copy of their attributes to restore."""

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


class Attributes:
    """Every attribute of every module of ``model``, as it is now."""

    def __init__(self, model: Module) -> None:
        self._saved = [
            (module, _copied(module), _copied(vars(module))) for _, module in model.named_modules()
        ]

    def restore(self) -> None:
        """Restore all attributes; attributes added since are removed."""
        for module, items, attributes in self._saved:
            _restore(module, items)
            _restore(vars(module), attributes)

    def changed(self) -> tuple[str, ...]:
        """The names of changed attributes."""
        return tuple(
            sorted(
                {
                    name
                    for module, items, attributes in self._saved
                    for state, was in ((module, items), (vars(module), attributes))
                    for name in state.keys() | was.keys()
                    if not name.startswith("__") and state.get(name) is not was.get(name)
                    if not isinstance(was.get(name), list | dict)
                }
            )
        )


def _copied(state: dict[str, Any]) -> dict[str, Any]:
    """A copy with copies of the lists and dictionaries in ``state``."""
    return {k: type(v)(v) if type(v) in (list, dict) else v for k, v in state.items()}


def _restore(state: dict[str, Any], was: dict[str, Any]) -> None:
    for name in state.keys() - was.keys():
        del state[name]
    dict.update(state, _copied(was))  # nn.Module.update takes parameters only
