"""Rules for every config of a model, whoever reads it: sizes must be valid sizes.

Otherwise a config of a million layers is only noticed once memory has run out.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

from conformance.core.errors import ConformanceError
from conformance.core.plain_text import plain_line

MOST_LAYERS = 4096
"""The deepest models known have some 130."""

MOST = 2**31 - 1
"""The limit of every other size: the libraries' own indices have 32 bits."""

_MOST_OTHERS = 65536  # for layers in fields that this module does not know by name
_NAME = re.compile(r"[\w.+ -]{0,100}")  # libraries look for a module of this name
_LAYERS = ("num_hidden_layers", "num_layers", "n_layers", "n_layer", "depth")
_ANY_LAYERS = re.compile(r".*(layers|blocks)(_.*)?")  # of towers and decoders, by many names
_SIZES = (
    *("vocab_size", "hidden_size", "intermediate_size", "num_attention_heads", "head_dim"),
    *("num_key_value_heads", "sliding_window", "max_position_embeddings", "n_positions"),
)
_TOWERS = ("text_config", "vision_config", "audio_config", "llm_config", "language_config")


def check_config(config: Mapping[str, Any], where: str, failed: type[ConformanceError]) -> None:
    """Check a config and the configs of its towers.

    Lists and nulls are left to the libraries, which know what some models mean by them.

    Raises:
        ConformanceError: of the type ``failed``; a size is not a whole number or absurd, or a tower
            is not an object; the message names the field.
    """
    kind = config.get("model_type")
    if isinstance(kind, str) and not _NAME.fullmatch(kind):
        raise failed(f"{where}: the field 'model_type' is no name of a model")
    for name in _TOWERS:
        tower = config.get(name)
        if isinstance(tower, Mapping):
            check_config(tower, f"{where}: {name}", failed)
        elif tower is not None and name == "text_config":
            raise failed(f"{where}: the field {name!r} must be an object")
    for names, most in ((_LAYERS, MOST_LAYERS), (_SIZES, MOST)):
        for name in names:
            value = config.get(name)
            if isinstance(value, bool | str) or (isinstance(value, int | float) and _odd(value)):
                raise failed(f"{where}: the field {name!r} is no whole number")
            if isinstance(value, int | float) and value < -1:
                raise failed(f"{where}: the field {name!r} must not be below 0")
            if isinstance(value, int | float) and value > most:
                raise failed(f"{where}: the field {name!r} must be at most {most}")
    for name, value in config.items():
        if isinstance(value, int) and value > _MOST_OTHERS and _ANY_LAYERS.fullmatch(name):
            raise failed(f"{where}: the field {plain_line(name)!r} must be at most {_MOST_OTHERS}")


def _odd(value: float) -> bool:
    return isinstance(value, float) and not (math.isfinite(value) and value.is_integer())
