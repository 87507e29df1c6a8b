"""Where a model is from: for engines that load it in a process of their own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from conformance.core.family import Family


@dataclass(frozen=True)
class Origin:
    """A family's model in one dtype with weights of one seed.

    ``model`` is what the library loaded; ``write`` puts its checkpoint into a folder, as
    ``Library.write`` does.
    """

    model: Any
    family: Family
    dtype: str
    seed: int
    write: Callable[[Path], object]
