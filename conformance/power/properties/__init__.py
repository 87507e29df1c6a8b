"""Properties of functions that need no model, by the library that has the functions.

Their base is in ``core/properties.py``; properties that both libraries share are in ``backend/``.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence

from conformance.core.properties import Property
from conformance.core.unavailable import Unavailable
from conformance.run.registry import Registry

_OWN = ("mlx_lm", "mlx_vlm")


def properties_of(registry: Registry) -> dict[str, Sequence[Property | Unavailable]]:
    """The properties of each library: this project's own, and the plugins' properties."""
    found: dict[str, Sequence[Property | Unavailable]] = {}
    for name, library in registry.libraries.items():
        own = importlib.import_module(f"{__name__}.{name}").properties() if name in _OWN else ()
        found[name] = (*own, *library.properties())
    return found
